"""What a workload's texts make impossible: prompts that no context holds, conversations on an engine that cannot hold one.

The texts are read for a plan anyway, since they name its points; what follows of them (:class:`~specsweep.client.workload.extent.Extent`)
is worked out once for each workload and ISL, whatever the number of points.

The rule for a context. What cannot fit whatever an engine answers is refused here: a prompt with its answer's cap, and a conversation whose
user alone says too much for its last turn. What only may outgrow it (its answers decide) is measured, with a warning: a turn that does
not fit any more is not sent, and stands in the results as failed, of the kind ``context``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specsweep.orchestrator.identity import recipe

if TYPE_CHECKING:
    from specsweep.client.workload.extent import Extent, Talk

Config = Mapping[str, Any]
LARGEST_CONTEXT = 10_485_760  # tokens, of Llama 4 Scout: no published model has a longer one
_REMEMBERED = 4096

_extents: dict[tuple[int, int], tuple[Any, Extent | None]] = {}  # by the mapping itself: a hundred thousand points share a few


def extent_of(config: Config) -> Extent | None:
    """What the point's prompts ask for. None where all are one turn of ``isl`` tokens, and of a workload that makes no prompts, which is told
    where points are named.
    """
    workload, isl = config["workload"], int(config["isl"])
    key = id(workload), isl
    known = _extents.get(key)
    if known is not None and known[0] is workload:
        return known[1]
    if len(_extents) >= _REMEMBERED:
        _extents.clear()
    found = _read(workload, isl)
    _extents[key] = workload, found
    return found


def _read(workload: Mapping[str, Any], isl: int) -> Extent | None:
    from specsweep.client.workload import WorkloadError
    from specsweep.client.workload.extent import extent

    try:
        found = extent(recipe(workload), isl)
    except WorkloadError:
        return None
    plain = found is None or all(t.fixed == isl and not t.max_tokens for t in found.all)
    return None if plain else found


def fits_context(config: Config) -> str | None:
    limit, osl, extent = config["target"].get("max_model_len"), config["workload"]["osl"], extent_of(config)
    drafted = 0 if config["drafter"]["method"] == "none" else config["draft_length"] or 0  # the last step drafts past the answer's end
    room = (limit or LARGEST_CONTEXT) - drafted
    drafting = f" and draft_length={drafted}" if drafted else ""
    most = f"target.max_model_len={limit}" if limit else f"{LARGEST_CONTEXT:,}, the longest context of any model"
    if extent is None:
        isl = config["isl"]
        return None if isl + osl <= room else f"isl={isl} and workload.osl={osl}{drafting} need {isl + osl + drafted} tokens; {most}"
    from specsweep.client.workload.extent import too_long

    talk = too_long(extent, osl, room, answers=False)
    return None if talk is None else _told(talk, config, drafting, most)


def _told(talk: Talk, config: Config, drafting: str, most: str) -> str:
    from specsweep.client.workload.extent import tokens

    workload = config["workload"]
    corpus, osl = workload.get("corpus"), workload["osl"]
    otherwise = f"leave it out of {corpus}" if corpus else "shorten workload.prompt"
    said = max(talk.said(tokens))
    if talk.max_tokens:
        return (
            f"prompt {talk.prompt_id} of {corpus} asks for max_tokens={talk.max_tokens} itself; with its {said} tokens{drafting} that is more "
            f"than {most}: lower it in the file"
        )
    if talk.turns > 1 and talk.has_history:
        return (
            f"what the user says in the {talk.turns} turns of conversation {talk.prompt_id} has {said} tokens; with workload.osl={osl}{drafting} that "
            f"is more than {most}, so its last turn could never be sent: set a smaller workload.osl, or {otherwise}"
        )
    return (
        f"prompt {talk.prompt_id} has {said} tokens at its natural length; with workload.osl={osl}{drafting} that is more than {most}: set a "
        f"smaller workload.osl, an isl that it is cut to, or {otherwise}"
    )


def history_may_outgrow(config: Config) -> str | None:
    """A warning: whether it does is up to the answers."""
    limit, osl, extent = config["target"].get("max_model_len"), config["workload"]["osl"], extent_of(config)
    if not limit or extent is None:
        return None
    from specsweep.client.workload.extent import too_long

    talk = too_long(extent, osl, int(limit), answers=True)
    if talk is None or talk.turns == 1:
        return None
    return (
        f"conversation {talk.prompt_id} of {talk.turns} turns may outgrow target.max_model_len={limit} if its answers reach workload.osl={osl}: a "
        "turn that does not fit any more is not sent and counts as failed (context)"
    )


def prompt_tokens(config: Config) -> float:
    """Tokens of a measured request's prompt: the ISL, or about the mean where there is none."""
    extent = extent_of(config)
    if extent is None:
        return float(config["isl"])
    from specsweep.client.workload.extent import prompt_tokens_mean

    return prompt_tokens_mean(extent, int(config["workload"]["osl"]))


def longest_need(config: Config) -> int:
    """Tokens of context that the longest prompt takes with all its answers."""
    extent, osl = extent_of(config), int(config["workload"]["osl"])
    if extent is None:
        return int(config["isl"]) + osl
    from specsweep.client.workload.extent import longest

    return longest(extent, osl)


def conversations_need_ids(config: Config) -> str | None:
    extent = extent_of(config)
    if config["engine"].get("dialect") != "openai_chat" or extent is None or all(t.turns == 1 for t in extent.all):
        return None
    return no_ids(config)


def no_ids(config: Config) -> str:
    """Why an engine that takes texts is sent no conversation. Its answers come back as text on several channels, without their ids, so what it
    made of a history could not be compared with ours, nor its thinking kept or cut as ``workload.thinking`` says."""
    return (
        f"workload {config['workload']['name']} has conversations of several turns, and engine {config['engine']['name']} takes texts and applies "
        "a template of its own; use an engine that takes token ids (a vLLM server can be measured as engine=vllm cluster=attach), or prompts "
        "of one turn"
    )
