"""Data sets as prompts: SPEED-Bench's buckets, conversations, which rows are taken and in which order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specsweep.client.workload import TargetTokenizer, WorkloadError, buckets, load_prompts, load_tokenizer, workload_hash
from specsweep.client.workload.documents import corpus, documents
from specsweep.client.workload.prompts import check_prompts
from specsweep.client.workload.rows import PLACEHOLDER, Row, write_rows

TINY = Path(__file__).parents[1] / "tiny_pair" / "target"
WORKLOAD: dict[str, Any] = {"prompts": 4, "ramp_prompts": 2, "osl": 16, "chat": True}


@pytest.fixture(scope="module")
def tokenizer() -> TargetTokenizer:
    return load_tokenizer(TINY)


def row(n: int, category: str, *turns: str, sub_category: str = "", difficulty: str = "") -> Row:
    return Row(f"{category}-{n}", category, sub_category, turns or (f"{category} {n}?",), "own", str(n), difficulty, len(turns) > 1)


def words(title: str, tokens: int) -> str:
    text = buckets.decode(buckets.encode(f"{title}: " + "a tale of many words and few deeds " * tokens)[:tokens])
    assert buckets.count(text) == tokens
    return text


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    for size in (1, 2):
        rows = [row(n, tier, words(f"{tier} {n}", size * 1000)) for tier in ("low_entropy", "mixed") for n in range(6)]
        write_rows(tmp_path / f"throughput_{size}k" / "test.parquet", rows)
    talks = [row(n, "math", f"What is {n} + 1?", "And twice that?", difficulty="hard") for n in range(4)]
    write_rows(tmp_path / "qualitative" / "test.parquet", [*talks, *(row(n, "writing", sub_category="poem") for n in range(4))])
    return tmp_path


def loaded(data: Path, isl: int, tokenizer: TargetTokenizer | None = None, **settings: Any) -> Any:
    return load_prompts({**WORKLOAD, "data": str(data), **settings}, isl=isl, tokenizer=tokenizer)


def test_a_prepared_bucket_is_sent_as_it_is_and_others_are_cut_from_the_next_longer_one(prepared: Path) -> None:
    rows = {d.doc_id: d.text for d in documents(corpus("speed/throughput", 1000, str(prepared)), 1000)}
    for prompt in loaded(prepared, 1000, corpus="speed/throughput").main:
        assert prompt.text == rows[prompt.prompt_id]
    for isl, bucket in ((1500, 2000), (256, 1000), (2000, 2000)):
        found = corpus("speed/throughput", isl, str(prepared))
        assert found.bucket == bucket
        prompts = loaded(prepared, isl, corpus="speed/throughput").main
        assert all(abs(p.isl_o200k - isl) <= 1 and p.padding_share == 0 for p in prompts)
    beyond = loaded(prepared, 2500, corpus="speed/throughput").main
    assert all(p.padding_share == pytest.approx(0.2) for p in beyond)


def test_a_folder_whose_number_is_none_is_no_bucket(prepared: Path) -> None:
    write_rows(prepared / "throughput_²k" / "test.parquet", [row(0, "mixed")])  # a digit to Python, and no number
    assert corpus("speed/throughput", 1000, str(prepared)).bucket == 1000


def test_labels_travel_with_the_prompts(prepared: Path, tokenizer: TargetTokenizer) -> None:
    found = loaded(prepared, 0, tokenizer, corpus="speed/qualitative", category="math", prompts=2)
    for prompt in (*found.main, *found.ramp):
        assert (prompt.category, prompt.difficulty, prompt.source, prompt.turns) == ("math", "hard", "own", ("And twice that?",))
        assert prompt.isl_o200k == buckets.count(prompt.text), "the ISL is that of what is sent first"
        assert "And twice that?" not in tokenizer.decode(prompt.ids)
    (poem,) = {p.sub_category for p in loaded(prepared, 0, corpus="speed/qualitative", sub_category="poem", prompts=2).main}
    assert poem == "poem"


def test_conversations_have_no_length_but_their_own(prepared: Path) -> None:
    with pytest.raises(WorkloadError, match=r"math-\d is a conversation of 2 turns, which cannot be brought to isl=64; set isl=natural"):
        loaded(prepared, 64, corpus="speed/qualitative", category="math", prompts=2)


def test_fewer_requests_than_there_are_go_round_the_categories(prepared: Path) -> None:
    found = loaded(prepared, 1000, corpus="speed/throughput", order="round_robin", prompts=5)
    assert [p.prompt_id for p in found.main] == ["low_entropy-0", "mixed-0", "low_entropy-1", "mixed-1", "low_entropy-2"]
    assert not {p.prompt_id for p in found.main} & {p.prompt_id for p in found.ramp}


def test_a_whole_split_is_measured_with_ramp_up_prompts_from_elsewhere(prepared: Path) -> None:
    found = loaded(prepared, 1000, corpus="speed/throughput", order="round_robin", prompts=12, ramp_corpus="mixed")
    assert [p.prompt_id for p in found.main][:7] == [*(f"low_entropy-{n}" for n in range(6)), "mixed-0"], "all of it: in its own order"
    assert all(p.prompt_id.startswith("mixed-ramp-") and abs(p.isl_o200k - 1000) <= 1 for p in found.ramp)


def test_rows_that_were_never_filled_in_are_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "qualitative" / "test.parquet", [row(0, "math", PLACEHOLDER), row(1, "math")])
    with pytest.raises(WorkloadError, match=r"1 of 2 rows hold the published placeholder.*specsweep data prepare"):
        loaded(tmp_path, 0, corpus="speed/qualitative", prompts=1, ramp_prompts=1)


def test_the_name_of_a_workload_follows_the_content_of_its_data(prepared: Path) -> None:
    workload = {**WORKLOAD, "data": str(prepared), "corpus": "speed/throughput"}
    before = {isl: workload_hash(workload, isl) for isl in (1000, 2000)}
    assert len(set(before.values())) == 2
    write_rows(prepared / "throughput_1k" / "test.parquet", [row(n, "mixed", words(f"new {n}", 1000)) for n in range(7)])
    assert workload_hash(workload, 1000) != before[1000]
    assert workload_hash(workload, 2000) == before[2000]


def test_a_folder_of_shards_is_one_data_set(tmp_path: Path) -> None:
    for shard in range(2):
        write_rows(tmp_path / f"{shard}.parquet", [row(10 * shard + n, "math") for n in range(3)])
    found = load_prompts({**WORKLOAD, "corpus": str(tmp_path), "order": "as_listed"}, isl=0, tokenizer=None)
    assert [p.prompt_id for p in (*found.main, *found.ramp)] == [f"math-{n}" for n in (0, 1, 2, 10, 11, 12)]


def test_lines_of_a_user_may_hold_conversations(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    lines = [{"prompt_id": str(n), "category": "c", "text": f"Hello {n}", "turns": ["More."], "difficulty": "easy"} for n in range(6)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = load_prompts({**WORKLOAD, "corpus": str(path)}, isl=0, tokenizer=None)
    assert {(p.turns, p.difficulty) for p in found.main} == {(("More.",), "easy")}


def test_question_files_and_tasks_are_corpora_too(tmp_path: Path) -> None:
    questions = tmp_path / "question.jsonl"
    rows = [{"question_id": n, "category": "math", "turns": [f"What is {n}?", "And twice that?"]} for n in range(6)]
    questions.write_text("".join(json.dumps(line) + "\n" for line in rows))
    found = load_prompts({**WORKLOAD, "corpus": str(questions)}, isl=0, tokenizer=None)
    assert {p.turns for p in found.main} == {("And twice that?",)}
    assert {p.source for p in found.main} == {"MT-Bench"}

    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"prompt": f"Count to {n}.", "max_tokens": 10 + n}) + "\n" for n in range(6)))
    found = load_prompts({**WORKLOAD, "corpus": str(tasks), "order": "as_listed"}, isl=0, tokenizer=None)
    assert [p.max_tokens for p in found.main] == [10, 11, 12, 13]


def test_one_text_and_the_built_in_tasks_need_ramp_up_prompts_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("Tell a story.")
    alone = {**WORKLOAD, "corpus": str(tmp_path / "prompt.txt"), "prompts": 1}
    with pytest.raises(WorkloadError, match=r"workload\.prompts \+ workload\.ramp_prompts=3, but corpus .* has 1"):
        load_prompts(alone, isl=0, tokenizer=None)
    (prompt,) = load_prompts({**alone, "ramp_corpus": "mixed"}, isl=0, tokenizer=None).main
    assert prompt.text == "Tell a story."
    built_in = load_prompts({**WORKLOAD, "corpus": "tasks", "prompts": 3, "ramp_corpus": "mixed"}, isl=0, tokenizer=None)
    assert {p.prompt_id for p in built_in.main} == {"builtin-code", "builtin-extract", "builtin-story"}


@pytest.mark.parametrize(
    ("settings", "isl", "words"),
    [
        ({}, 1000, "conversation of 2 turns, which cannot be brought to isl=1000; set isl=natural"),
        ({"ramp_corpus": "nowhere.jsonl"}, 0, "workload.ramp_corpus='nowhere.jsonl'"),
        ({"ramp_corpus": "{own}"}, 0, "would be in the ramp-up and measured too"),
        ({"ramp_corpus": "random"}, 0, "workload.ramp_corpus=random: ramp-up prompts are texts"),
        ({"template_args": {"messages": 1}}, 0, "template_args: 'messages'"),
        ({"category": 5}, 0, "5 is no label"),
        ({"corpus": "random"}, 0, "random tokens have no length of their own"),
    ],
)
def test_a_plan_refuses_what_a_run_could_not_send(settings: dict[str, Any], isl: int, words: str, tmp_path: Path) -> None:
    own = tmp_path / "own.parquet"
    write_rows(own, [Row(f"q{n}", "qa", "", (f"Who is {n}?", "And why?"), "", "", "", multiturn=True) for n in range(6)])
    settings = {name: str(own) if value == "{own}" else value for name, value in settings.items()}
    with pytest.raises(WorkloadError, match=words):
        check_prompts({**WORKLOAD, "corpus": str(own), **settings}, isl)


def test_half_a_surrogate_pair_is_refused_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text('{"prompt_id": "a", "category": "qa", "text": "x\\ud800"}\n')
    with pytest.raises(WorkloadError, match=r"own\.jsonl:1: not JSON"):
        check_prompts({**WORKLOAD, "corpus": str(tmp_path / "own.jsonl")}, 0)


def test_a_text_of_spaces_is_refused_by_its_line_and_a_byte_order_mark_is_none(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    line = {"prompt_id": "a", "category": "c", "text": "Hello"}
    file.write_text("\ufeff" + json.dumps(line), encoding="utf-8")
    assert [d.text for d in documents(corpus(str(file)))] == ["Hello"]
    file.write_text(json.dumps(line) + "\n" + json.dumps({**line, "prompt_id": "b", "text": " \t"}), encoding="utf-8")
    with pytest.raises(WorkloadError, match=r"own.jsonl:2: text must be a non-empty string"):
        documents(corpus(str(file)))
