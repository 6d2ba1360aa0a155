"""Raw data over the network: data sets of the Hugging Face hub, and single files of the web.

The hub's own library does the downloading (a file gets its name when it is whole), keeps the files in its cache, and answers from there
when it is offline. Files of the web are kept in ``~/.cache/specsweep/sources`` (or ``SPECSWEEP_SOURCES``) in the same way: written aside,
counted against what the server announced, then renamed. Nothing is written into the current folder.

Whatever goes wrong becomes one :class:`SourceAway` that says which of the few possible things a user has to do.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from specsweep.client.workload.aside import whole
from specsweep.client.workload.prepare.errors import SourceAway
from specsweep.client.workload.prepare.tables import Fetched, Table, whole_shards

TIMEOUT_S = 30.0  # of silence, not of a whole download
TRIES = 3
CHUNK = 1 << 20
HOME = "SPECSWEEP_SOURCES"


class HubFiles:
    """``cache``: where files of the web are kept. ``sleep``: between tries, seconds."""

    def __init__(self, cache: Path | None = None, *, timeout_s: float = TIMEOUT_S, sleep: Callable[[float], None] = time.sleep) -> None:
        self._cache = cache or Path(os.environ.get(HOME) or "~/.cache/specsweep/sources").expanduser()
        self._timeout_s = timeout_s
        self._sleep = sleep

    def fetch(self, table: Table) -> tuple[Fetched, ...]:
        return (self._of_web(table.place),) if table.is_url else of_hub(table)

    def _of_web(self, url: str) -> Fetched:
        address = urlsplit(url)
        if address.scheme not in ("http", "https"):
            raise SourceAway(f"{url}: only http and https are fetched")
        name = Path(address.path).name or "file"
        path = self._cache / hashlib.sha256(url.encode()).hexdigest()[:16] / name
        for left in reversed(range(TRIES)):
            if path.is_file():
                break
            try:
                _download(url, path, self._timeout_s)
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    raise SourceAway(f"{url}: the server answers {error.code} {error.reason}; the file was moved or is closed") from error
                self._again_or_away(url, error, left)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, PermissionError):
                    raise SourceAway(f"{path}: cannot be written ({error.strerror}); set {HOME} to a folder that can") from error
                self._again_or_away(url, error, left)
        return Fetched(path, url, name, "")

    def _again_or_away(self, url: str, error: Exception, left: int) -> None:
        if not left:
            raise SourceAway(
                f"{url}: cannot be fetched ({_reason(error)}), {TRIES} times; run the command again later, or fetch it elsewhere and name the folder with from="
            ) from error
        self._sleep(2.0 ** (TRIES - left))


def _download(url: str, path: Path, timeout_s: float) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "specsweep"})
    with urllib.request.urlopen(request, timeout=timeout_s) as answer, whole(path) as file:
        while chunk := answer.read(CHUNK):
            file.write(chunk)
        announced = answer.headers.get("Content-Length")
        if announced is not None and file.tell() != int(announced):
            raise ConnectionError(f"{file.tell()} of {announced} bytes came")


def of_hub(table: Table) -> tuple[Fetched, ...]:
    """The files of a data set of the hub. Raises :class:`SourceAway`."""
    try:
        from huggingface_hub import constants, snapshot_download
        from huggingface_hub import errors as hub
    except ImportError as error:
        raise SourceAway(f"{table.place}: huggingface_hub is not installed; `pip install huggingface_hub`") from error
    page = f"https://huggingface.co/datasets/{table.place}"
    elsewhere = "or fetch it on another machine and give the folder as from="
    try:
        snapshot = Path(snapshot_download(table.place, repo_type="dataset", revision=table.revision, allow_patterns=list(table.files)))
    except hub.GatedRepoError as error:
        raise SourceAway(
            f"{table.place} is gated: open {page}, accept its terms, set HF_TOKEN to a token of that account, and run the command again"
        ) from error
    except hub.RepositoryNotFoundError as error:
        raise SourceAway(f"{table.place}: the hub has no such data set, or your HF_TOKEN may not see it ({page})") from error
    except hub.RevisionNotFoundError as error:
        raise SourceAway(f"{table.place}: the hub has no revision {table.revision} of it ({page}/commits/main)") from error
    except (hub.OfflineModeIsEnabled, hub.LocalEntryNotFoundError) as error:
        # Without a network the hub's library says the same as with HF_HUB_OFFLINE: what to do about it is not the same.
        do = "unset HF_HUB_OFFLINE" if isinstance(error, hub.OfflineModeIsEnabled) or constants.HF_HUB_OFFLINE else "look at the network"
        raise SourceAway(f"{table.place}: the hub is not reached and the local cache does not have it; {do}, {elsewhere}") from error
    except (OSError, hub.EntryNotFoundError) as error:
        raise SourceAway(f"{table.place}: cannot be fetched ({_reason(error)}); run the command again later, {elsewhere}") from error
    found = []
    for pattern in table.files:
        paths = sorted(path for path in snapshot.glob(pattern) if path.is_file())
        if not whole_shards(paths):
            raise SourceAway(f"{table}: {pattern} is not there, or not every part of it; see {page}/tree/{table.revision}, {elsewhere}")
        found += [Fetched(path, table.place, path.relative_to(snapshot).as_posix(), snapshot.name) for path in paths]
    return tuple(found)


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
