"""A file that is there whole or not at all: written aside, then renamed. Half a data set would be measured like a whole one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """What is written to it is at ``path`` if nothing is raised, and nowhere otherwise. The folder is made if it is missing.

    The name that it has meanwhile is hidden, so that readers of the folder pass it over. Raises ``OSError`` that names ``path``, also for
    a folder or a device of that name, which a file must not take the place of.
    """
    if path.exists() and not path.is_file():
        code = errno.EISDIR if path.is_dir() else errno.EEXIST
        raise OSError(code, os.strerror(code), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
    except OSError as error:  # of a full disk nothing says which file it was
        if error.errno is None or error.filename not in (None, str(aside)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        aside.unlink(missing_ok=True)
