"""Runs SGLang's expert distribution recorder over HTTP: start, stop, dump, and the wait for the files.

The three orders are POST requests without a body, and each answers when every rank has obeyed, but for the dump, which some versions
hand on and do not wait for. A file is there when it can be read to its end: the directory of a zip stands last, so a file that is still
being written has none.
"""

from __future__ import annotations

import asyncio
import zipfile
from collections.abc import Mapping
from pathlib import Path

import aiohttp

START, STOP, DUMP = "/start_expert_distribution_record", "/stop_expert_distribution_record", "/dump_expert_distribution_record"
ORDER_TIMEOUT_S = 120.0
FILES_TIMEOUT_S = 120.0
POLL_S = 0.1


class RecorderError(RuntimeError):
    """The recorder did not obey, or wrote nothing."""


class Recorder:
    """The recorder of one server whose ``folder`` is on this machine. ``files``: how many one dump writes, one a rank."""

    def __init__(self, base_url: str, folder: Path, *, files: int, headers: Mapping[str, str] | None = None) -> None:
        self._base_url, self._folder, self._files, self._headers = base_url, folder, files, dict(headers or {})

    async def start(self) -> None:
        """Forgets what was recorded before."""
        await self._order(START)

    async def stop(self) -> None:
        await self._order(STOP)

    async def dump(self, *, timeout_s: float = FILES_TIMEOUT_S) -> dict[str, bytes]:
        """The content of the files of one dump, by name; they are removed from the folder. Raises :class:`RecorderError`."""
        known = set(self._names())
        await self._order(DUMP)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            new = [name for name in self._names() if name not in known]
            if len(new) >= self._files and all(zipfile.is_zipfile(self._folder / name) for name in new):
                return {name: self._take(name) for name in new}
            if loop.time() > deadline:
                raise RecorderError(
                    f"{len(new)} of {self._files} files of the expert recorder are in {self._folder} after {timeout_s:.0f} s; "
                    "see the engine's log for what its ranks say of the dump"
                )
            await asyncio.sleep(POLL_S)

    def _names(self) -> list[str]:
        return sorted(path.name for path in self._folder.glob("*.pt"))

    def _take(self, name: str) -> bytes:
        path = self._folder / name
        content = path.read_bytes()
        path.unlink()
        return content

    async def _order(self, path: str) -> None:
        timeout = aiohttp.ClientTimeout(total=ORDER_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session,
                session.post(self._base_url + path) as answer,
            ):
                text = await answer.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise RecorderError(f"POST {path}: {type(error).__name__}: {error}") from error
        if answer.status != 200:
            raise RecorderError(f"POST {path}: HTTP {answer.status}: {text[:200]}")
