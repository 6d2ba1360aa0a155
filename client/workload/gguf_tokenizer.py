"""Builds the exact tokenizer of a GGUF-only target out of its metadata.

A GGUF names its splitting rule (``tokenizer.ggml.pre``) and llama.cpp keeps the rules in C++ (``llama-vocab.cpp``). They are repeated
here for the rules that were compared id by id with a running llama-server; a rule that is not here is refused, because a tokenizer
that is nearly right measures another prompt than the one it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from specsweep.client.workload.errors import WorkloadError

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True, slots=True)
class _Rule:
    patterns: tuple[str, ...]  # applied in order, each to the pieces that the one before left
    add_bos: bool = False  # llama.cpp's default where the file does not say
    whole_words: bool = False  # a piece that is a token by itself is taken whole, whatever the merges say


_RULES = {
    "gpt-2": _Rule((_GPT2,)),
    "smollm": _Rule((r"\p{N}", _GPT2)),  # digits one by one
    "llama-bpe": _Rule((_LLAMA3,), add_bos=True, whole_words=True),
    "qwen2": _Rule((_QWEN2,)),
}
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5
# Texts that llama.cpp takes for an end of generation whatever the metadata says (llama-vocab.cpp); a server stops on each.
_END_TEXTS = frozenset(
    (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|flush|>",
        "<|calls|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "</s>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<eos>",
    )
)


def build(metadata: Mapping[str, Any]) -> Tokenizer:
    """A ``tokenizers`` pipeline that gives llama-server's ids. Raises :class:`WorkloadError` for a model or rule that is not known."""
    rule = _rule(metadata)
    texts: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ", 1)) for m in metadata["tokenizer.ggml.merges"]]
    vocabulary = {text: i for i, text in enumerate(texts)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=rule.whole_words))
    splits = [pre_tokenizers.Split(Regex(p), behavior="isolated") for p in rule.patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    kinds: list[int] = metadata.get("tokenizer.ggml.token_type", [])
    special = [AddedToken(texts[i], special=True, normalized=False) for i, k in enumerate(kinds) if k in (_UNKNOWN, _CONTROL)]
    plain = [AddedToken(texts[i], special=False, normalized=False) for i, k in enumerate(kinds) if k == _USER_DEFINED]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(plain)
    return tokenizer


def bos_id(metadata: Mapping[str, Any]) -> int | None:
    """The BOS id if prompts of this model start with one, else None."""
    wanted = metadata.get("tokenizer.ggml.add_bos_token", _rule(metadata).add_bos)
    return metadata.get("tokenizer.ggml.bos_token_id") if wanted else None


def eos_ids(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """Every id on which llama-server stops, the model's own EOS first."""
    named = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    by_text = [i for i, text in enumerate(metadata["tokenizer.ggml.tokens"]) if text in _END_TEXTS]
    return tuple(dict.fromkeys(i for i in [*named, *by_text] if i is not None))


def special_texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    """What a chat template may name: ``bos_token``, ``eos_token``, …, as text."""
    texts = metadata["tokenizer.ggml.tokens"]
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    found = {out: metadata.get(f"tokenizer.ggml.{key}_token_id") for out, key in names.items()}
    return {out: texts[i] for out, i in found.items() if i is not None}


def ordinary_ids(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """The ids that exist and are not special, ascending."""
    kinds: list[int] = metadata.get("tokenizer.ggml.token_type") or [1] * len(metadata["tokenizer.ggml.tokens"])
    return tuple(i for i, kind in enumerate(kinds) if kind not in (_UNKNOWN, _CONTROL, _UNUSED))


def _rule(metadata: Mapping[str, Any]) -> _Rule:
    model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "gpt-2")
    if model != "gpt2" or pre not in _RULES:
        raise WorkloadError(
            f"tokenizer.ggml.model={model!r} with tokenizer.ggml.pre={pre!r} is not built in (gpt2 with {', '.join(_RULES)} is); "
            "set model.tokenizer to the model's Hugging Face folder (tokenizer.json is enough)"
        )
    return _RULES[pre]
