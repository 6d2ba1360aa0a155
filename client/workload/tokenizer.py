"""The target's own tokenizer and chat template, from its Hugging Face folder or from its GGUF.

Every prompt reaches the engine as token ids, so this is the place where BOS, template and special tokens are decided, once, for all
engines. A Hugging Face folder is loaded the way that vLLM and SGLang load it (``AutoTokenizer``). A GGUF carries the vocabulary but
not the splitting rule, only its name; :mod:`gguf_tokenizer` holds the rules. Templates are rendered by transformers in both cases.

Importing transformers takes about two seconds, so it happens at the first template, not at import.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.gguf_metadata import is_gguf, read_metadata

Message = Mapping[str, Any]


class TargetTokenizer(Protocol):
    """What the workload needs of a tokenizer. Ids are those that the engine's embedding table uses."""

    eos_ids: tuple[int, ...]  # every id that ends an answer
    vocab_size: int  # number of tokens, special ones included
    has_template: bool

    def encode(self, text: str, *, add_bos: bool = False) -> list[int]:
        """Ids of ``text``; special tokens written in it become their ids. ``add_bos`` puts one BOS in front if the model wants one."""
        ...

    def render(self, messages: Sequence[Message], *, answer_start: str = "", **template_args: Any) -> list[int]:
        """Ids of a conversation through the chat template, generation prompt included.

        ``answer_start`` is the beginning of the assistant's answer. It is encoded by itself, since the model would have produced it
        after the generation prompt: no token may span that border. The template alone decides about BOS.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def ordinary_ids(self) -> Sequence[int]:
        """The ids that exist and are not special, ascending."""
        ...


def load_tokenizer(source: Path) -> TargetTokenizer:
    """From a GGUF file or a Hugging Face folder. Local files only: never touches the network.

    Raises :class:`WorkloadError` if there is nothing usable at ``source``.
    """
    source = Path(source)
    if source.is_dir():
        return _FolderTokenizer(source)
    if is_gguf(source):
        return _GgufTokenizer(source)
    if not source.exists():
        raise WorkloadError(f"tokenizer: {source} does not exist; give a GGUF file or a Hugging Face folder")
    raise WorkloadError(f"tokenizer: {source} is neither a GGUF file nor a Hugging Face folder")


class _FolderTokenizer:
    def __init__(self, folder: Path) -> None:
        auto = _transformers().AutoTokenizer
        try:
            self._tokenizer = auto.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        except Exception as e:  # transformers raises OSError, ValueError, KeyError and the Rust library's bare Exception for a bad folder
            raise WorkloadError(f"tokenizer: no tokenizer can be loaded from {folder}: {_first_line(e)}") from e
        self.vocab_size = len(self._tokenizer)
        self.eos_ids = _folder_eos(folder, self._tokenizer.eos_token_id)
        self.has_template = bool(self._tokenizer.chat_template)
        # Whether prompts start with BOS is what the tokenizer does to an empty text. Only its first id is taken: some append EOS too.
        bos = self._tokenizer.bos_token_id
        self._bos: int | None = bos if bos is not None and self._tokenizer.encode("", add_special_tokens=True)[:1] == [bos] else None

    def encode(self, text: str, *, add_bos: bool = False) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False, verbose=False)  # a long text is no warning here
        return _with_bos(ids, self._bos) if add_bos and self._bos is not None else ids

    def render(self, messages: Sequence[Message], *, answer_start: str = "", **template_args: Any) -> list[int]:
        if not self.has_template:
            raise WorkloadError("the target has no chat template; set workload.chat=false or give target.model.tokenizer a folder with one")
        text = _rendered(
            lambda: self._tokenizer.apply_chat_template(
                [dict(m) for m in messages], tokenize=False, add_generation_prompt=True, **template_args
            )
        )
        return self.encode(text) + (self.encode(answer_start) if answer_start else [])

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def ordinary_ids(self) -> Sequence[int]:
        added = self._tokenizer.added_tokens_decoder
        special = {*self._tokenizer.all_special_ids, *(i for i, token in added.items() if token.special)}
        return sorted(set(self._tokenizer.get_vocab().values()) - special)


class _GgufTokenizer:
    def __init__(self, path: Path) -> None:
        from specsweep.client.workload.gguf_tokenizer import bos_id, build, eos_ids, ordinary_ids, special_texts

        metadata = read_metadata(path)
        try:
            self._tokenizer = build(metadata)
        except WorkloadError as e:
            raise WorkloadError(f"tokenizer: {path}: {e}") from None
        self.vocab_size = len(metadata["tokenizer.ggml.tokens"])
        self.eos_ids = eos_ids(metadata)
        self._bos = bos_id(metadata)
        self._template: str = metadata.get("tokenizer.chat_template", "")
        self._ordinary = ordinary_ids(metadata)
        self._special_texts = special_texts(metadata)
        self.has_template = bool(self._template)

    def encode(self, text: str, *, add_bos: bool = False) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return _with_bos(ids, self._bos) if add_bos and self._bos is not None else ids

    def render(self, messages: Sequence[Message], *, answer_start: str = "", **template_args: Any) -> list[int]:
        if not self.has_template:
            raise WorkloadError(
                "the target's GGUF has no chat template; set workload.chat=false or give target.model.tokenizer a folder with one"
            )
        _transformers()
        from transformers.utils.chat_template_utils import render_jinja_template

        args = {**self._special_texts, **template_args}
        rendered = _rendered(
            lambda: render_jinja_template([[dict(m) for m in messages]], chat_template=self._template, add_generation_prompt=True, **args)
        )
        text = rendered[0][0] if isinstance(rendered, tuple) else rendered[0]
        return self.encode(text) + (self.encode(answer_start) if answer_start else [])

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def ordinary_ids(self) -> Sequence[int]:
        return self._ordinary


def _with_bos(ids: list[int], bos: int) -> list[int]:
    return ids if ids[:1] == [bos] else [bos, *ids]


def _rendered(render: Any) -> Any:
    try:
        return render()
    except Exception as e:  # a template is code of the model's authors: it can raise anything
        raise WorkloadError(f"the target's chat template failed: {type(e).__name__}: {_first_line(e)}") from e


def _folder_eos(folder: Path, tokenizer_eos: int | None) -> tuple[int, ...]:
    """The ids of generation_config.json (engines stop on those too), then the tokenizer's own."""
    ids: list[int] = []
    config = folder / "generation_config.json"
    if config.is_file():
        found = json.loads(config.read_text("utf-8")).get("eos_token_id")
        ids += found if isinstance(found, list) else [] if found is None else [found]
    if tokenizer_eos is not None:
        ids.append(tokenizer_eos)
    return tuple(dict.fromkeys(ids))


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _transformers() -> Any:
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # "PyTorch was not found" says nothing to a user of tokenizers
    import transformers

    return transformers
