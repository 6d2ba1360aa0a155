"""The target's tokenizer and template. The engine tests compare with a running llama-server id by id."""

from __future__ import annotations

import json
import random
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsweep.client.workload import WorkloadError, load_tokenizer
from specsweep.client.workload.gguf_metadata import read_metadata
from specsweep.client.workload.tokenizer import TargetTokenizer
from specsweep.orchestrator.gguf_convert import convert_checkpoint

TINY = Path(__file__).parents[1] / "tiny_pair" / "target"
SAMPLES = [
    "def f(x):\n    return x + 12345  # ½²٣\n\n\n\tif\r\n",
    "naïve café, 中文字符 and 🙂👩‍👩‍👧 emoji; don't WE'LL I'D",
    "  two  spaces\u00a0nbsp\u3000wide\u2028line   \n\n  ",
    "0 12 123 1234 3.14159 1e-9 ٠١٢ 0xFF",
    "",
    " ",
    "\n",
]


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tiny") / "target.gguf"
    convert_checkpoint(TINY, out, "f16")
    return out


@pytest.fixture(scope="session")
def from_gguf(tiny_gguf: Path) -> TargetTokenizer:
    return load_tokenizer(tiny_gguf)


@pytest.fixture(scope="session")
def from_folder() -> TargetTokenizer:
    return load_tokenizer(TINY)


@pytest.mark.parametrize("text", SAMPLES)
def test_folder_and_gguf_of_one_model_agree(from_folder: TargetTokenizer, from_gguf: TargetTokenizer, text: str) -> None:
    assert from_gguf.encode(text) == from_folder.encode(text)
    assert from_gguf.decode(from_gguf.encode(text)) == text == from_folder.decode(from_folder.encode(text))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80))
def test_agreement_and_round_trip_on_any_text(from_folder: TargetTokenizer, from_gguf: TargetTokenizer, text: str) -> None:
    ids = from_gguf.encode(text)
    assert ids == from_folder.encode(text)
    assert from_gguf.decode(ids) == text
    assert all(0 <= i < from_gguf.vocab_size for i in ids)


def test_facts_of_the_two_agree(from_folder: TargetTokenizer, from_gguf: TargetTokenizer) -> None:
    assert from_folder.eos_ids == from_gguf.eos_ids == (0,)
    assert from_folder.vocab_size == from_gguf.vocab_size == 4096


@pytest.mark.parametrize("which", ["from_folder", "from_gguf"])
def test_template_is_the_models_own_with_the_generation_prompt(which: str, request: pytest.FixtureRequest) -> None:
    tokenizer: TargetTokenizer = request.getfixturevalue(which)
    ids = tokenizer.render([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    assert tokenizer.decode(ids) == "system: Be brief.\nuser: Hi\nassistant: "
    assert 1 not in ids  # this template has no BOS, so none is added


@pytest.mark.parametrize("which", ["from_folder", "from_gguf"])
def test_a_begun_answer_never_merges_with_the_generation_prompt(which: str, request: pytest.FixtureRequest) -> None:
    tokenizer: TargetTokenizer = request.getfixturevalue(which)
    messages = [{"role": "user", "content": "Hi"}]
    start = "return"  # " " + "return" would become one token if the two were encoded as one text
    assert tokenizer.encode("assistant: " + start) != tokenizer.encode("assistant: ") + tokenizer.encode(start)
    assert tokenizer.render(messages, answer_start=start) == tokenizer.render(messages) + tokenizer.encode(start)


def test_special_tokens_in_a_template_become_their_ids_and_bos_comes_once(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    (folder / "chat_template.jinja").write_text("{{ bos_token }}{% for m in messages %}{{ m.content }}<|end|>{% endfor %}")
    rendered = load_tokenizer(folder).render([{"role": "user", "content": "Hi"}])
    assert rendered[0] == 1
    assert rendered.count(1) == 1
    assert rendered[-1] == 0
    gguf = tmp_path / "model.gguf"
    convert_checkpoint(folder, gguf, "f16")
    assert load_tokenizer(gguf).render([{"role": "user", "content": "Hi"}]) == rendered


def test_plain_text_starts_with_bos_only_where_the_model_wants_one(tmp_path: Path, tiny_gguf: Path, from_gguf: TargetTokenizer) -> None:
    assert from_gguf.encode("Hi", add_bos=True) == from_gguf.encode("Hi")
    wanting = load_tokenizer(_with_metadata(tiny_gguf, tmp_path / "bos.gguf", add_bos=True))
    assert wanting.encode("Hi", add_bos=True) == [1, *from_gguf.encode("Hi")]
    assert wanting.encode("<|bos|>Hi", add_bos=True) == [1, *from_gguf.encode("Hi")]


def test_template_that_raises_is_an_error_of_the_workload(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    (folder / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(WorkloadError, match=r"chat template failed.*roles must alternate"):
        load_tokenizer(folder).render([{"role": "user", "content": "x"}])


def test_model_without_template_says_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    (folder / "chat_template.jinja").unlink()
    gguf = tmp_path / "model.gguf"
    convert_checkpoint(folder, gguf, "f16")
    for source in (folder, gguf):
        tokenizer = load_tokenizer(source)
        assert not tokenizer.has_template
        with pytest.raises(WorkloadError, match=r"workload\.chat=false"):
            tokenizer.render([{"role": "user", "content": "x"}])


def test_sources_that_are_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="does not exist"):
        load_tokenizer(tmp_path / "nothing.gguf")
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(WorkloadError, match="neither a GGUF file nor a Hugging Face folder"):
        load_tokenizer(tmp_path / "text.gguf")
    (tmp_path / "empty").mkdir()
    with pytest.raises(WorkloadError, match="no tokenizer can be loaded from"):
        load_tokenizer(tmp_path / "empty")


def test_unknown_splitting_rule_is_refused_and_not_guessed(tiny_gguf: Path, tmp_path: Path) -> None:
    odd = _with_metadata(tiny_gguf, tmp_path / "odd.gguf", pre="brand-new")
    with pytest.raises(WorkloadError, match=r"pre='brand-new' is not built in.*Hugging Face folder"):
        load_tokenizer(odd)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_cut_gguf_is_an_error_and_never_a_crash(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = tiny_gguf.read_bytes()
    cut = tmp_path_factory.mktemp("cut") / "cut.gguf"
    cut.write_bytes(whole[: data.draw(st.integers(0, 100_000))])
    with pytest.raises(WorkloadError):
        read_metadata(cut)


def test_metadata_reader_agrees_with_the_gguf_package(tiny_gguf: Path) -> None:
    import gguf

    theirs = {k: f.contents() for k, f in gguf.GGUFReader(tiny_gguf).fields.items() if not k.startswith("GGUF.")}
    assert read_metadata(tiny_gguf) == theirs


def _with_metadata(source: Path, target: Path, *, pre: str | None = None, add_bos: bool | None = None) -> Path:
    """A copy of a GGUF with other tokenizer settings."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    changed = {"tokenizer.ggml.pre": pre, "tokenizer.ggml.add_bos_token": add_bos}
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = changed[name] if changed.get(name) is not None else field.contents()
        writer.add_key_value(name, value, field.types[0], field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


@contextmanager
def _llama_server(model: Path) -> Iterator[str]:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.n_ctx, parameters.cpuparams.n_threads = 512, 1
    server = xllamacpp.Server(parameters)
    try:
        yield server.listening_address
    finally:
        del server


def _server_ids(base: str, text: str) -> list[int]:
    body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
    request = urllib.request.Request(f"{base}/tokenize", data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        ids: list[int] = json.load(answer)["tokens"]
        return ids


def _broad_sample() -> list[str]:
    """Code, documentation, and random text from pools that splitting rules trip over."""
    rng = random.Random(0)
    pools = [
        "abc XYZ 012 ½²٣ éßñ 中文字 🙂👩‍👩‍👧 \n\r\t  \u00a0\u3000\u2028 '\"`'s 'LL {}();=+-_/* ﷺ\u0301\u200d ",
        "  \n\n\t\r ",
        "0123456789 ٠١٢Ⅷ",
        "'s't're'VE 'Ll ’s'M'D x",
    ]
    texts = ["".join(rng.choice(pool) for _ in range(rng.randint(1, 60))) for pool in pools for _ in range(60)]
    texts += [
        "".join(chr(rng.choice([*range(1, 0x300), *range(0x3000, 0x3100), *range(0x1F600, 0x1F650)])) for _ in range(40)) for _ in range(60)
    ]
    texts += [Path(__file__).read_text(), Path(json.__file__).read_text()[:20_000], "<|bos|>user<|end|> a <|en", " <|pad|> x"]
    return texts + SAMPLES


@pytest.mark.engine
@pytest.mark.parametrize("rule", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_every_splitting_rule_gives_llama_servers_ids(rule: str, tiny_gguf: Path, tmp_path: Path) -> None:
    model = _with_metadata(tiny_gguf, tmp_path / "model.gguf", pre=rule)
    tokenizer = load_tokenizer(model)
    with _llama_server(model) as base:
        different = [(text, want, got) for text in _broad_sample() if (want := _server_ids(base, text)) != (got := tokenizer.encode(text))]
    assert different == []


@pytest.mark.engine
def test_rendered_conversation_is_llama_servers(tiny_gguf: Path, from_gguf: TargetTokenizer) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\n there"}]
    with _llama_server(tiny_gguf) as base:
        body = json.dumps({"messages": messages}).encode()
        request = urllib.request.Request(f"{base}/apply-template", data=body, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = json.load(answer)["prompt"]
        assert _server_ids(base, text) == from_gguf.render(messages)
