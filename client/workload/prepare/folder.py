"""Raw data from a folder that was filled elsewhere, for machines without a network.

Layout: a repository of the hub under its own name (``FOLDER/cais/hle/data/…``, as ``hf download --repo-type dataset --local-dir`` lays it)
and a file of the web under its address (``FOLDER/HOST/PATH``, as ``wget --force-directories`` does).
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from specsweep.client.workload.prepare.errors import SourceAway
from specsweep.client.workload.prepare.tables import Fetched, Table, whole_shards


class FolderFiles:
    def __init__(self, root: Path) -> None:
        self.root = root

    def fetch(self, table: Table) -> tuple[Fetched, ...]:
        if table.is_url:
            address = urlsplit(table.place)
            path = self.root / address.netloc / address.path.lstrip("/")
            if not path.is_file():
                raise SourceAway(
                    f"from={self.root} has no {path.relative_to(self.root)}; fetch it with "
                    f"`wget --force-directories --directory-prefix={self.root} {table.place}`"
                )
            return (Fetched(path, table.place, path.name, ""),)
        folder = self.root / table.place
        found = []
        for pattern in table.files:
            paths = sorted(path for path in folder.glob(pattern) if path.is_file())
            if not whole_shards(paths):
                raise SourceAway(
                    f"from={self.root} has no (or not every) {table.place}/{pattern}; fetch it with `hf download --repo-type dataset "
                    f"{table.place} --revision {table.revision} --include '{pattern}' --local-dir {folder}`"
                )
            # The folder cannot say of which commit it is: the revision that was asked for is not written down as a fact.
            found += [Fetched(path, table.place, path.relative_to(folder).as_posix(), "") for path in paths]
        return tuple(found)
