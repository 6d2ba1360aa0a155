"""Role play: a character's description and what it is asked.

The paper speaks of system prompts. The published code has none: the description is the start of the first *user* turn, for RoleBench
(whose row brings one of eight templates for it) and for CoSER. The code is followed, since all numbers were measured with it.
"""

from __future__ import annotations

import random
import re

import numpy as np

from specsweep.client.workload.prepare import texts
from specsweep.client.workload.prepare.errors import RowError
from specsweep.client.workload.prepare.registry import Context, Filled, number, part, seed_of, source, template
from specsweep.client.workload.prepare.tables import Record, Table
from specsweep.client.workload.rows import Row

COSER_SEED = 12347  # again for every row, so a row's character depends on nothing but how many major ones its book has
ROLES_REVISION = "a57ed54f9613921e4a5f1b63601a558cd5acf971"
ROLE_DESCRIPTIONS = Table("ZenMoore/RoleBench", ("profiles-eng/desc.json",), ROLES_REVISION)


@source("ZenMoore/RoleBench")
def role_bench(row: Row, at: Context) -> Filled:
    """``src_id`` lists many rows of one role; the first as many as the row has turns are asked. Later ones do not name the role again."""
    subset, place = part(row, 1), hub_folder(row)
    table = Table(place.place, (f"{place.files[0]}/{subset}/role_specific/test.jsonl",), place.revision, ("role", "question"))
    numbers = [int(n) for n in re.findall(r"_(\d+)", row.src_id)][: len(row.turns)]
    if not numbers:
        raise RowError(f"row {row.question_id}: src_id {row.src_id[:80]!r} holds no row number")
    asked = [at.at(table, n) for n in numbers]
    role = asked[0]["role"]
    description = _description(at, role)
    first = template(row, role_name=role, role_description_and_catchphrases=description) + "\n" + asked[0]["question"]
    return Filled((first, *(_without_name(entry["question"], role) for entry in asked[1:])))


@source("Neph0s/CoSER")
def coser(row: Row, at: Context) -> Filled:
    """One scene of a book, seen by one of its major characters."""
    place = hub_folder(row)
    scene = at.at(Table(place.place, ("test/test_set.json",), place.revision), number(row, part(row, 1)))
    names = scene["major_characters"]
    if not names:
        raise RowError(f"row {row.question_id}: scene {row.src_id} has no major character")
    character = str(np.random.default_rng(COSER_SEED).choice(names)) if at.is_official else random.Random(seed_of(row)).choice(names)
    text, has_motivation = seen_by(character, scene)
    return Filled((text,), () if has_motivation else (f"the scene gives {character} no motivation",))


def seen_by(character: str, scene: Record) -> tuple[str, bool]:
    """The prompt, and whether the scene has a motivation for the character. Other characters stand in the order of the scene."""
    profiles = scene["character_profiles"]
    others = (f"{name}: {profile}" for name, profile in profiles.items() if name != character and profile is not None)
    motivations = [key["motivation"] for key in scene["key_characters"] if key["name"] == character]
    text = texts.CHARACTER.format(
        character=character,
        book=scene["book"],
        profile=profiles.get(character),  # "None" where it has none, as the official loader fills the gaps between scenes
        scenario=scene["scenario"],
        others="\n\n".join(others),
        motivation=motivations[0] if motivations else texts.NO_MOTIVATION,
    )
    return text, bool(motivations)


def hub_folder(row: Row) -> Table:
    """Repository, folder and commit that a ``source`` on the hub names: ``…/datasets/<owner>/<name>/tree/<commit>[/<folder>]``."""
    named = re.search(r"datasets/([^/]+/[^/]+)/(?:tree|blob|raw|resolve)/([^/]+)(?:/(.+?))?/?$", row.source)
    if named is None:
        raise RowError(f"row {row.question_id}: source {row.source!r} names no folder of a data set (…/datasets/OWNER/NAME/tree/COMMIT)")
    return Table(named[1], (named[3] or "",), named[2])


def _description(at: Context, role: str) -> str:
    descriptions = at.at(ROLE_DESCRIPTIONS, 0)
    if role not in descriptions:
        raise RowError(f"{ROLE_DESCRIPTIONS} describes no {role!r}")
    return str(descriptions[role])


def _without_name(question: str, role: str) -> str:
    return question.removeprefix(f"{role}, ").removeprefix(f" {role},")
