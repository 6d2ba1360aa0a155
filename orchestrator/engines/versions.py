"""Which version of an engine a session runs, as far as it was declared: flags and limits differ between versions.

The version is what the config says (``engine.version``), else what the image's tag says, else unknown; an unknown version is
taken for the newest that the launchers know, because that is what a bare ``latest`` gives.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

_IN_TAG = re.compile(r"v?(\d+\.\d+(?:\.\d+)?(?:\.?(?:rc|post|dev)\d+)*)")


def declared_version(engine: Mapping[str, Any]) -> Version | None:
    """Of the ``engine`` group: ``version``, or the number in the tag of ``image``. None: not declared."""
    if engine.get("version"):
        return parse(str(engine["version"]))
    image = str(engine.get("image") or "")
    _, colon, tag = image.rpartition(":")
    return parse(tag) if colon and "/" not in tag else None


def parse(text: str) -> Version | None:
    """``0.5.7``, ``v0.13.0``, ``1.2.0rc7``, ``v0.5.7-cu130``; None if there is no version in it."""
    found = _IN_TAG.match(text.strip())
    try:
        return Version(found.group(1)) if found else None
    except InvalidVersion:
        return None


def at_least(version: Version | None, wanted: str) -> bool:
    """Whether ``version`` is ``wanted`` or newer, release candidates of ``wanted`` included; True for an unknown version."""
    return version is None or version.release >= Version(wanted).release


def installed(python: str, *distributions: str) -> str | None:
    """The version of the first of these that the environment of an interpreter has, read off the names of its installed distributions:
    starting that interpreter would take a second."""
    found = shutil.which(python)
    for site in sorted(Path(found).parent.parent.glob("lib/python3*/*-packages")) if found else ():
        for info in sorted(site.glob("*.dist-info")):
            name, _, version = info.name.removesuffix(".dist-info").partition("-")
            if name.lower() in distributions:
                return version
    return None
