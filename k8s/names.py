"""Names and labels: the same for the same thing, so that running again finds what is already there.

A name is made of a word for people and a fingerprint that tells things apart, and must be a DNS label that starts with a
letter (a Service's rule, the strictest), at most 63 long (a Job's name becomes a label of its pods). Where the word had to be
changed or cut, a hash of the original goes between, so two long names that begin alike stay two names.

Labels are what people select by (``kubectl get jobs,pods -l specsweep.io/sweep=fig7``) and what tells our objects from others'.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from specsweep.k8s.errors import SpecError

MAX_LENGTH = 63
HASH_LENGTH = 8
MAX_FINGERPRINT = 32

APP = "specsweep"
NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
SWEEP = "specsweep.io/sweep"
SESSION = "specsweep.io/session"
CONTENT = "specsweep.io/content"  # annotation: hash of the object as we made it

_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_FINGERPRINT = re.compile(rf"[a-z0-9]{{1,{MAX_FINGERPRINT}}}")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


def is_dns_label(text: str) -> bool:
    return len(text) <= MAX_LENGTH and _DNS_LABEL.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    return len(text) <= MAX_LENGTH and _LABEL_VALUE.fullmatch(text) is not None


def object_name(word: str, fingerprint: str) -> str:
    """``word-fingerprint`` as a DNS label. Raises SpecError if the fingerprint is not 1 to 32 of ``a-z0-9``."""
    if not _FINGERPRINT.fullmatch(fingerprint):
        raise SpecError(
            f"fingerprint={fingerprint!r} must be 1 to {MAX_FINGERPRINT} characters of a-z and 0-9 (hexadecimal digits of a hash)"
        )
    room = MAX_LENGTH - len(fingerprint) - 1
    if is_dns_label(word) and len(word) <= room:
        return f"{word}-{fingerprint}"
    slug = re.sub(r"[^a-z0-9]+", "-", word.lower()).lstrip("-0123456789")[: room - HASH_LENGTH - 1].strip("-") or "x"
    return f"{slug}-{_hash(word)}-{fingerprint}"


def label_value(text: str) -> str:
    """``text`` where it is a label value already, else the nearest one with a hash of the original."""
    if is_label_value(text):
        return text
    slug = re.sub(r"[^A-Za-z0-9_.]+", "-", text)[: MAX_LENGTH - HASH_LENGTH - 1].strip("-_.")
    return f"{slug}-{_hash(text)}" if slug else _hash(text)


def labels(component: str, *, sweep: str, session: str | None = None) -> dict[str, str]:
    """What every object of ours carries. ``component``: engine, sweep, client, prefetch, …"""
    ours = {
        NAME: APP,
        COMPONENT: label_value(component),
        MANAGED_BY: APP,
        PART_OF: APP,
        SWEEP: label_value(sweep),
    }
    return ours if session is None else {**ours, SESSION: label_value(session)}


def label_of(obj: Mapping[str, Any], name: str) -> str:
    """Of an API object; empty if it has none of that name."""
    return str((obj["metadata"].get("labels") or {}).get(name, ""))


def carries(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether an object with the labels ``found`` is ours, and the one that ``wanted`` are the labels of."""
    return found.get(MANAGED_BY) == APP and all(found.get(key) == value for key, value in wanted.items())


def selector(wanted: Mapping[str, str]) -> str:
    """The query text that selects objects which carry all of ``wanted``, in one order for one meaning."""
    return ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]
