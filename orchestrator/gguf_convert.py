"""Writes the GGUF files that llama.cpp needs: a quantised file as F16, and a Hugging Face Llama checkpoint as GGUF.

Quantised weights make verification dear on a CPU (Q4_1: five tokens cost 3.5 times one), so that no drafter could win; F16 does not.
Both conversions are deterministic: the same input gives the same bytes, and the result's hash names it. Norms and other vectors stay F32,
as llama.cpp's own converter leaves them. The checkpoint converter knows exactly one architecture (Llama with tied or untied embeddings
and a byte-level BPE) and refuses everything else; llama.cpp's ``convert_hf_to_gguf.py`` is the general tool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("f16", "f32")
TOP_NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


class ConversionError(ValueError):
    """The input cannot be converted; the message says what it has that is not understood."""


def requantise(source: Path, target: Path, kind: str) -> None:
    """Copy the GGUF ``source`` to ``target`` with its matrices as ``kind`` (``f16`` or ``f32``) and its vectors as F32.

    Raises :class:`ConversionError` for a file that is damaged or holds a quantisation that NumPy cannot undo.
    """
    import gguf

    try:
        reader = gguf.GGUFReader(source)
    except (ValueError, IndexError, KeyError, OSError) as e:  # whatever its NumPy views trip over first
        raise ConversionError(f"{source} is damaged or no GGUF that can be read: {e}") from e
    architecture = str(reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(target, architecture)
    replaced = ("general.architecture", "general.file_type", "general.quantization_version")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in replaced:
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    _add_file_type(writer, kind)
    for tensor in reader.tensors:
        try:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as e:
            raise ConversionError(f"{source}: tensor {tensor.name} is {tensor.tensor_type.name}, which cannot be dequantised here") from e
        _add_tensor(writer, tensor.name, values, kind)
    _write(writer)


def convert_checkpoint(folder: Path, target: Path, kind: str) -> None:
    """Write a Hugging Face Llama checkpoint (``config.json``, ``model.safetensors``, ``tokenizer.json``) as GGUF.

    Raises :class:`ConversionError` for another architecture, another kind of tokenizer, or a missing file.
    """
    import gguf
    from safetensors.numpy import load_file

    config, tokenizer = _json(folder, "config.json"), _json(folder, "tokenizer.json")
    _check(folder, config, tokenizer)
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise ConversionError(f"{folder} has no model.safetensors (checkpoints in several files are not converted here)")
    writer = gguf.GGUFWriter(target, "llama")
    # The name is fixed: the bytes must not depend on where the folder lies.
    writer.add_name(str(config.get("_name_or_path") or "llama"))
    heads, kv_heads = int(config["num_attention_heads"]), int(config.get("num_key_value_heads") or config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(float(config.get("rope_theta") or config["rope_parameters"]["rope_theta"]))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    _add_file_type(writer, kind)
    _add_tokenizer(writer, folder, config, tokenizer)
    for name, values in sorted(load_file(weights).items()):
        if "q_proj" in name or "k_proj" in name:
            values = _interleaved(values, heads if "q_proj" in name else kv_heads)
        _add_tensor(writer, _gguf_name(name), values, kind)
    _write(writer)


def _check(folder: Path, config: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> None:
    if config.get("architectures") != ["LlamaForCausalLM"]:
        raise ConversionError(
            f"{folder}: architecture {config.get('architectures')} is not converted here (LlamaForCausalLM is); give a GGUF"
        )
    if config.get("attention_bias") or config.get("mlp_bias"):
        raise ConversionError(f"{folder}: a Llama checkpoint with biases is not converted here; give a GGUF")
    rope = (config.get("rope_parameters") or config.get("rope_scaling") or {}).get("rope_type", "default")
    if rope != "default":
        raise ConversionError(f"{folder}: rope_type {rope!r} is not converted here; give a GGUF")
    if tokenizer["model"]["type"] != "BPE" or (tokenizer.get("pre_tokenizer") or {}).get("type") != "ByteLevel":
        raise ConversionError(f"{folder}: only a byte-level BPE tokenizer with GPT-2's splitting is converted here; give a GGUF")


def _add_tokenizer(writer: Any, folder: Path, config: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> None:
    import gguf

    vocabulary: dict[str, int] = {**tokenizer["model"]["vocab"], **{a["content"]: a["id"] for a in tokenizer["added_tokens"]}}
    tokens = [f"[PAD{i}]" for i in range(config["vocab_size"])]
    for text, i in vocabulary.items():
        tokens[i] = text
    special = {a["id"] for a in tokenizer["added_tokens"] if a["special"]}
    kinds = [gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for i in range(len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    for name, add in (("bos", writer.add_bos_token_id), ("eos", writer.add_eos_token_id), ("pad", writer.add_pad_token_id)):
        if (found := config.get(f"{name}_token_id")) is not None:
            add(found)
    writer.add_add_bos_token(False)
    template = folder / "chat_template.jinja"
    if template.is_file():
        writer.add_chat_template(template.read_text("utf-8"))


def _gguf_name(name: str) -> str:
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, _, block, *rest = name.split(".")
    layer = ".".join(rest[:-1])
    if not name.startswith("model.layers.") or layer not in LAYER_NAMES:
        raise ConversionError(f"the checkpoint has a weight that a Llama has not: {name}")
    return f"blk.{block}.{LAYER_NAMES[layer]}.weight"


def _interleaved(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """Hugging Face stores the two halves of the rotary dimensions one after the other, GGUF interleaves them."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _add_tensor(writer: Any, name: str, values: NDArray[Any], kind: str) -> None:
    half = kind == "f16" and values.ndim > 1
    writer.add_tensor(name, np.ascontiguousarray(values, dtype=np.float16 if half else np.float32))


def _add_file_type(writer: Any, kind: str) -> None:
    import gguf

    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if kind == "f16" else gguf.LlamaFileType.ALL_F32)


def _write(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _json(folder: Path, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / name).read_text("utf-8"))
    except OSError as e:
        raise ConversionError(f"{folder} has no readable {name} ({e.strerror})") from e
    except json.JSONDecodeError as e:
        raise ConversionError(f"{folder / name} is not JSON: {e}") from e
    return found
