"""From settings to ids: determinism, the three recipes, a user's own file, and the hash that names it all."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from specsweep.client.workload import PromptSet, TargetTokenizer, WorkloadError, buckets, load_prompts, load_tokenizer, workload_hash

TINY = Path(__file__).parents[1] / "tiny_pair" / "target"
TIERS = ("low_entropy", "mixed", "high_entropy")
WORKLOAD: dict[str, Any] = {
    "name": "any",
    "corpus": "low_entropy",
    "prompts": 6,
    "ramp_prompts": 3,
    "osl": 128,
    "chat": True,
    "system": None,
    "padding": buckets.DEFAULT_PADDING,
    "seed": 0,
}


@pytest.fixture(scope="module")
def tokenizer() -> TargetTokenizer:
    return load_tokenizer(TINY)


def _corpus(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(path)


def _own(n: int) -> list[dict[str, Any]]:
    return [{"prompt_id": f"p{i}", "category": "even" if i % 2 == 0 else "odd", "text": f"Question {i}: why?"} for i in range(n)]


def _all(prompts: PromptSet) -> list[Any]:
    return [*prompts.main, *prompts.ramp]


@pytest.mark.parametrize("corpus", TIERS)
@pytest.mark.parametrize("isl", [64, 256, 1000])
def test_committed_prompts_fill_their_bucket_without_padding(corpus: str, isl: int, tokenizer: TargetTokenizer) -> None:
    prompts = load_prompts({**WORKLOAD, "corpus": corpus, "prompts": 96, "ramp_prompts": 64}, isl=isl, tokenizer=tokenizer)
    assert (len(prompts.main), len(prompts.ramp)) == (96, 64)
    for p in _all(prompts):
        assert p.isl_o200k == buckets.count(p.text)
        assert abs(p.isl_o200k - isl) <= 2
        assert p.padding_share == 0
        assert tokenizer.decode(p.ids).startswith(f"user: {p.text}\nassistant: ")
    assert {p.category for p in _all(prompts)} == {corpus}
    assert len({p.ids for p in _all(prompts)}) == 160


def test_a_bucket_beyond_the_texts_is_padded_and_says_how_much(tokenizer: TargetTokenizer, tmp_path: Path) -> None:
    rows = [{"prompt_id": f"p{i}", "category": "c", "text": f"{i} " + "one more word " * 370} for i in range(9)]
    prompts = load_prompts({**WORKLOAD, "corpus": _corpus(tmp_path / "own.jsonl", rows)}, isl=2000, tokenizer=tokenizer)
    assert all(0.4 < p.padding_share < 0.5 and abs(p.isl_o200k - 2000) <= 2 for p in prompts.main)
    assert all("Answer now please.\nAnswer now please.\n" in p.text[-60:] for p in prompts.main)


def test_low_entropy_answers_are_a_begun_third_copy(tokenizer: TargetTokenizer) -> None:
    for p in load_prompts({**WORKLOAD, "prompts": 48}, isl=256, tokenizer=tokenizer).main:
        _, _, copies = p.text.partition("\n\n")
        _, _, begun = tokenizer.decode(p.ids).rpartition("\nassistant: ")
        assert begun
        assert copies.startswith(begun)
        assert copies.count(begun) >= 2
        # what is left of one copy is more than half of it: there is something to go on with
        passage = copies[: copies.index(begun, len(begun))]
        assert len(begun) < 0.75 * len(passage)
        assert not begun[-1].isspace()


@pytest.mark.parametrize("corpus", ["mixed", "high_entropy"])
def test_instruction_survives_the_smallest_bucket(corpus: str, tokenizer: TargetTokenizer) -> None:
    short, long = (load_prompts({**WORKLOAD, "corpus": corpus}, isl=isl, tokenizer=tokenizer).main[0].text for isl in (32, 256))
    assert short.split("\n\n")[0] == long.split("\n\n")[0]


def test_the_same_prompts_on_every_machine(tokenizer: TargetTokenizer) -> None:
    """A change of these digests is a change of every measured prompt: raise recipes.VERSION with it."""
    found = {}
    for corpus in TIERS:
        prompts = load_prompts({**WORKLOAD, "corpus": corpus}, isl=256, tokenizer=tokenizer)
        found[corpus] = hashlib.sha256(json.dumps([[p.prompt_id, p.ids] for p in _all(prompts)]).encode()).hexdigest()[:16]
    assert found == DIGESTS


DIGESTS = {"low_entropy": "c42477dab794950b", "mixed": "95d24050b598fe14", "high_entropy": "ba623aafab7626cf"}


def test_seed_draws_other_prompts_and_more_prompts_keep_the_first(tokenizer: TargetTokenizer) -> None:
    first = load_prompts(WORKLOAD, isl=64, tokenizer=tokenizer)
    more = load_prompts({**WORKLOAD, "prompts": 12}, isl=64, tokenizer=tokenizer)
    assert more.main[:6] == first.main
    other = load_prompts({**WORKLOAD, "seed": 1}, isl=64, tokenizer=tokenizer)
    assert {p.prompt_id for p in other.main} != {p.prompt_id for p in first.main}


def test_without_chat_the_bare_text_is_sent(tokenizer: TargetTokenizer) -> None:
    prompts = load_prompts({**WORKLOAD, "corpus": "mixed", "chat": False}, isl=64, tokenizer=tokenizer)
    assert [tokenizer.decode(p.ids) for p in prompts.main] == [p.text for p in prompts.main]
    copied = load_prompts({**WORKLOAD, "chat": False}, isl=256, tokenizer=tokenizer).main[0]
    assert tokenizer.decode(copied.ids).startswith(copied.text)
    assert len(tokenizer.decode(copied.ids)) > len(copied.text)


def test_system_message_and_template_arguments_reach_the_template(tokenizer: TargetTokenizer) -> None:
    prompt = load_prompts({**WORKLOAD, "system": "Be brief."}, isl=64, tokenizer=tokenizer).main[0]
    assert tokenizer.decode(prompt.ids).startswith("system: Be brief.\nuser: ")

    class Spy:
        eos_ids, vocab_size, has_template = (), 1, True
        seen: dict[str, Any] = {}  # noqa: RUF012

        def render(self, messages: Any, *, answer_start: str = "", **args: Any) -> list[int]:
            self.seen.update(args)
            return [1]

        def encode(self, text: str) -> list[int]:
            return [1]

    load_prompts({**WORKLOAD, "template_args": {"enable_thinking": False}}, isl=64, tokenizer=Spy())  # type: ignore[arg-type]
    assert Spy.seen == {"enable_thinking": False}


def test_without_a_tokenizer_there_is_text_only() -> None:
    prompts = load_prompts(WORKLOAD, isl=64, tokenizer=None)
    assert all(p.ids == () and buckets.count(p.text) == p.isl_o200k for p in _all(prompts))


def test_own_file(tmp_path: Path, tokenizer: TargetTokenizer) -> None:
    rows = [*_own(8), {"prompt_id": "begun", "category": "even", "text": "Count.", "answer_start": "1, 2,"}]
    workload = {**WORKLOAD, "corpus": _corpus(tmp_path / "own.jsonl", rows), "prompts": 6, "ramp_prompts": 3}
    prompts = load_prompts(workload, isl=7, tokenizer=tokenizer)
    assert {p.prompt_id for p in _all(prompts)} == {r["prompt_id"] for r in rows}
    (begun,) = (p for p in _all(prompts) if p.prompt_id == "begun")
    assert tokenizer.decode(begun.ids).endswith("assistant: 1, 2,")

    packed = tmp_path / "own.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "own.jsonl").read_bytes()))
    assert load_prompts({**workload, "corpus": str(packed)}, isl=7, tokenizer=tokenizer) == prompts


def test_category_filter(tmp_path: Path, tokenizer: TargetTokenizer) -> None:
    workload = {**WORKLOAD, "corpus": _corpus(tmp_path / "own.jsonl", _own(20))}
    chosen = load_prompts({**workload, "category": "odd"}, isl=8, tokenizer=tokenizer)
    assert {p.category for p in _all(chosen)} == {"odd"}
    with pytest.raises(WorkloadError, match=r"workload\.category='prime' is not in .*; it has even, odd"):
        load_prompts({**workload, "category": ["odd", "prime"]}, isl=8, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("{", r"own\.jsonl:1: not JSON"),
        ("[1]", r"own\.jsonl:1: a line must be a JSON object, got list"),
        ('{"prompt_id": "a", "category": "x"}', r"own\.jsonl:1: text must be a non-empty string, got None"),
        ('{"prompt_id": "a", "category": "x", "text": ""}', r"own\.jsonl:1: text must be a non-empty string, got ''"),
        ('{"prompt_id": 7, "category": "x", "text": "t"}', r"own\.jsonl:1: prompt_id must be a non-empty string, got 7"),
        ('{"prompt_id": "a", "category": "x", "text": "t", "turn": []}', r"own\.jsonl:1: unknown field 'turn'"),
        ('{"prompt_id": "a", "category": "x", "text": "t", "turns": [" "]}', r"own\.jsonl:1: turns must be a list of non-empty strings"),
        ('{"prompt_id": "a", "category": "x", "text": "t", "answer_start": 1}', r"own\.jsonl:1: answer_start must be a string, got 1"),
        (
            '{"prompt_id": "a", "category": "x", "text": "t"}\n\n{"prompt_id": "a", "category": "x", "text": "u"}',
            r":3: prompt_id 'a' was used on line 1",
        ),
        (
            '{"prompt_id": "a", "category": "x", "text": "t"}\n{"prompt_id": "b", "category": "x", "text": "t"}',
            "prompts [ab] and [ab] have the same text",
        ),
    ],
)
def test_malformed_files_name_file_line_and_field(lines: str, message: str, tmp_path: Path, tokenizer: TargetTokenizer) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(lines)
    with pytest.raises(WorkloadError, match=message):
        load_prompts({**WORKLOAD, "corpus": str(path), "prompts": 1, "ramp_prompts": 1}, isl=8, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": 97}, r"workload\.prompts=97, but corpus 'low_entropy' has 96"),
        ({"ramp_prompts": 65}, r"workload\.ramp_prompts=65, but corpus 'low_entropy' has 64"),
        ({"prompts": 0}, r"workload\.prompts=0 must be a whole number of at least 1"),
        ({"prompts": "many"}, r"workload\.prompts='many' must be"),
        ({"prompts": True}, r"workload\.prompts=True must be"),
        ({"corpus": None}, r"workload\.corpus is missing"),
        ({"corpus": "lowentropy"}, r"workload\.corpus='lowentropy': .*No such file.*corpora are low_entropy, mixed"),
        ({"order": "random"}, r"workload\.order='random': choose one of drawn, round_robin, as_listed"),
        ({"thinking": "drop"}, r"workload\.thinking='drop': choose keep or cut"),
        ({"thinking_end": ""}, r"workload\.thinking_end='' must be the text that ends the thinking, for example '</think>'; leave it out"),
        ({"thinking_end": 3, "thinking": "cut"}, r"workload\.thinking_end=3 must be the text"),
        ({"category": "code"}, r"workload\.category='code' is not in low_entropy; it has low_entropy"),
        ({"difficulty": "hard"}, r"workload\.difficulty='hard' is not in low_entropy; it has none"),
        ({"corpus": "speed/agentic"}, r"SPEED-Bench has speed/qualitative and speed/throughput"),
        ({"corpus": "speed/throughput", "data": "/nowhere"}, r"/nowhere holds no prepared bucket; make one with `specsweep data prepare"),
        ({"corpus": "speed/qualitative", "data": "/nowhere"}, r"No such file.*`specsweep data prepare qualitative` makes it"),
    ],
)
def test_settings_that_cannot_be_used(change: dict[str, Any], message: str, tokenizer: TargetTokenizer) -> None:
    isl = change.pop("isl", 64)
    with pytest.raises(WorkloadError, match=message):
        load_prompts({**WORKLOAD, **change}, isl=isl, tokenizer=tokenizer)


def test_too_few_prompts_of_ones_own(tmp_path: Path, tokenizer: TargetTokenizer) -> None:
    workload = {**WORKLOAD, "corpus": _corpus(tmp_path / "own.jsonl", _own(8))}
    with pytest.raises(WorkloadError, match=r"workload\.prompts \+ workload\.ramp_prompts=9, but corpus .* has 8"):
        load_prompts(workload, isl=8, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("corpus", "mixed"),
        ("prompts", 7),
        ("ramp_prompts", 4),
        ("osl", 64),
        ("chat", False),
        ("system", "Be brief."),
        ("template_args", {"a": 1}),
        ("padding", "Go.\n"),
        ("seed", 1),
        ("category", "low_entropy"),
        ("order", "round_robin"),
        ("ramp_corpus", "mixed"),
    ],
)
def test_hash_changes_with_every_field_of_the_recipe(field: str, value: Any) -> None:
    assert workload_hash({**WORKLOAD, field: value}, 256) != workload_hash(WORKLOAD, 256)


def test_hash_names_content_and_nothing_else(tmp_path: Path) -> None:
    assert workload_hash(WORKLOAD, 256) != workload_hash(WORKLOAD, 257)
    assert workload_hash({**WORKLOAD, "name": "other", "corpus": "low"}, 256) == workload_hash(WORKLOAD, 256)
    here, there = (_corpus(tmp_path / name, _own(9)) for name in ("here.jsonl", "there.jsonl"))
    assert workload_hash({**WORKLOAD, "corpus": here}, 8) == workload_hash({**WORKLOAD, "corpus": there}, 8)
    before = workload_hash({**WORKLOAD, "corpus": here}, 8)
    _corpus(Path(here), _own(10))
    assert workload_hash({**WORKLOAD, "corpus": here}, 8) != before
    with pytest.raises(WorkloadError, match=r"workload\.corpus"):
        workload_hash({**WORKLOAD, "corpus": str(tmp_path / "gone.jsonl")}, 8)


def test_a_large_plan_reads_its_corpus_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many points ask for the hash: a file is read again only when it has changed."""
    workload = {**WORKLOAD, "corpus": _corpus(tmp_path / "own.jsonl", _own(9))}
    reads: list[Path] = []
    real = Path.open

    def opened(path: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        if mode == "rb":
            reads.append(path)
        return real(path, mode, *args, **more)

    monkeypatch.setattr(Path, "open", opened)
    assert len({workload_hash({**workload, "prompts": prompts}, isl) for isl in range(100) for prompts in (5, 6)}) == 200
    assert len(reads) == 1
    _corpus(tmp_path / "own.jsonl", _own(10))
    reads.clear()
    for isl in range(5):
        workload_hash(workload, isl)
    assert len(reads) == 1


def test_nothing_here_opens_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    load_prompts(WORKLOAD, isl=64, tokenizer=load_tokenizer(TINY))


def test_planning_imports_no_heavy_library() -> None:
    code = (
        "import sys; from specsweep.client.workload import workload_hash; "
        "workload_hash({'corpus': 'mixed', 'prompts': 1, 'ramp_prompts': 1}, 64); "
        "print([m for m in ('transformers', 'quicktok', 'gguf', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
