"""What a person reads when a file cannot be written: which file, why, and what to do.

The system's own error names the file where opening it fails, and nothing at all where writing does (a disk that is full).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specsweep.orchestrator.errors import ConfigError

_ADVICE = {
    errno.ENOSPC: "free some space or write elsewhere, and give the same command again",
    errno.EDQUOT: "free some space or write elsewhere, and give the same command again",
    errno.EROFS: "write elsewhere",
    errno.EACCES: "change its rights, or write elsewhere",
    errno.EPERM: "change its rights, or write elsewhere",
    errno.EISDIR: "it is a folder: name a file in it",
    errno.ENOTDIR: "a part of this path is a file: name a folder there",
    errno.EEXIST: "a file of this name is in the way: name a folder",
}
_BAD_INPUT = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)


@contextmanager
def writing(path: Path | None) -> Iterator[None]:
    """Gives an ``OSError`` that names no file the name of what is written. None: nothing is."""
    try:
        yield
    except OSError as error:
        if path is None or error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def told(error: OSError) -> str:
    where = error.filename2 or error.filename or "what was printed"
    advice = _ADVICE.get(error.errno or 0)
    return f"{where}: {error.strerror or error}" + (f"; {advice}" if advice else "")


def is_bad_input(error: OSError) -> bool:
    """Whether another word on the command line mends it, and not the machine."""
    return error.errno in _BAD_INPUT


def refuse_folder(path: Path | None, option: str, example: str) -> None:
    """Before the work, whose result would have no place to go. Raises ConfigError."""
    if path is not None and path.exists() and not path.is_file():
        what = "is a folder" if path.is_dir() else "is no plain file"
        advice = f"name a file in it, as {path / example}" if path.is_dir() else f"name another file, as {example}"
        raise ConfigError(f"{option} {path}: {what}; {advice}")
