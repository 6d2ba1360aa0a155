"""Why a combination cannot run, decided before anything is started.

A rule is a function of a point's complete config that gives the reason or None. Reasons name the fields and what to change,
since they are all that a person sees of the cell that was lost. What one engine cannot do, its launcher says
(:func:`specsweep.orchestrator.engines.launcher`); the rules here hold for every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from specsweep.orchestrator import capture_rules, drafter_facts, workload_rules
from specsweep.orchestrator.kube import rules as kubernetes

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """``source``: where the limit comes from, so that it can be checked when it gets in the way."""

    name: str
    source: str
    check: Callable[[Config], str | None]


def _engine_has_drafter(config: Config) -> str | None:
    method, engine = config["drafter"]["method"], config["engine"]["name"]
    known = _launcher(engine).drafters
    if method in known:
        return None
    return f"engine {engine} has no drafter method {method!r}; it has {', '.join(sorted(known))}"


def _engine_only_attached(config: Config) -> str | None:
    engine = config["engine"]["name"]
    if not _launcher(engine).attach_only or config["cluster"]["kind"] == "attach":
        return None
    return f"engine {engine} is not started by specsweep, only measured where it runs: cluster=attach endpoint=http://host:port"


def _draft_length_positive(config: Config) -> str | None:
    length = config["draft_length"]
    if config["drafter"]["method"] == "none" or (length is not None and length >= 1):
        return None
    return f"draft_length={length} drafts nothing; the baseline is drafter=none"


def _target_has_model(config: Config) -> str | None:
    if config["target"].get("model") or config["engine"].get("dialect") == "openai_chat":  # which takes texts: nothing is tokenized here
        return None
    return (
        f"target {config['target']['name']} has no model, and without its tokenizer there are no prompts; "
        "set target.model, for example target.model={source: path, path: FILE}"
    )


def _drafter_has_model(config: Config) -> str | None:
    drafter = config["drafter"]
    if drafter.get("model", "") is not None or config["cluster"]["kind"] == "attach":  # an attached server has its drafter already
        return None
    if _launcher(config["engine"]["name"]).model_format == "tokenizer":  # it loads no weights
        return None
    target = config["target"]["name"]
    return f"drafter {drafter['name']} has no model for target {target}; set drafter.model, or draft_model in the target's file"


def _target_has_mtp(config: Config) -> str | None:
    if config["drafter"]["method"] != "mtp" or config["target"].get("mtp_predict") or config["cluster"]["kind"] == "attach":
        return None
    if _launcher(config["engine"]["name"]).model_format == "tokenizer":  # the simulator loads no weights
        return None
    return f"target {config['target']['name']} has no MTP layers that it says of; drafter=mtp needs target.mtp_predict (1 for one layer)"


def _same_vocabulary(config: Config) -> str | None:
    target, drafter = config["target"], config["drafter"]
    ours, theirs = target.get("vocab_size"), drafter.get("vocab_size")
    if ours is None or theirs is None or ours == theirs:
        return None
    return f"drafter {drafter['name']} has a vocabulary of {theirs}, target {target['name']} one of {ours}: its tokens mean something else"


def _drafter_is_what_it_says(config: Config) -> str | None:
    if config["cluster"]["kind"] == "attach" or _launcher(config["engine"]["name"]).model_format == "tokenizer":  # neither loads it here
        return None
    return drafter_facts.mismatch(config, Path(str(config["cache"])))


def _batch_fits_engine(config: Config) -> str | None:
    size, limit = config["batch_size"], config["engine"].get("max_batch")
    if limit is None or size <= limit:
        return None
    return f"batch_size={size} is above engine.max_batch={limit}: requests would wait inside the engine; raise it or leave it unset"


def _enough_prompts(config: Config) -> str | None:
    if not config["drafter"].get("stateful"):
        return None
    have, need = config["workload"]["prompts"], config["measure"]["requests_per_slot"] * config["batch_size"]
    ramp, size = config["workload"].get("ramp_prompts") or 0, config["batch_size"]
    wanted = [f"workload.prompts={need}, there are {have}"] if have < need else []
    wanted += [f"workload.ramp_prompts={size}, there are {ramp}"] if ramp < size else []
    if not wanted:
        return None
    return (
        f"drafter {config['drafter']['name']} learns from earlier answers and must not see a prompt twice: "
        f"batch_size={size} needs {' and '.join(wanted)}"
    )


def _chat_wire_needs_chat(config: Config) -> str | None:
    if config["engine"].get("dialect") != "openai_chat" or config["workload"]["chat"]:
        return None
    engine, workload = config["engine"]["name"], config["workload"]["name"]
    return f"engine {engine} applies its chat template to every prompt; workload {workload} has chat=false"


def _kv_capacity(config: Config) -> str | None:
    """Arithmetic over the model's own config: beyond it an engine queues or preempts, and the batch size is a fiction."""
    memory, per_gpu = config["target"].get("memory"), config["cluster"].get("gpu_memory_gb")
    gpus = int(config["target"].get("gpus") or 0)
    if not memory or not per_gpu or not gpus:
        return None
    bytes_per_token = int(memory["layers"]) * int(memory["kv_values"]) * float(memory["kv_bytes"])
    room = (KV_SHARE * float(per_gpu) * gpus - float(memory["weights_gb"])) * 1e9
    tokens = max(0, int(room / bytes_per_token))
    osl = int(config["workload"]["osl"])
    need = int(config["batch_size"]) * (round(workload_rules.prompt_tokens(config)) + osl)
    if need <= tokens:
        return None
    return (
        f"batch_size={config['batch_size']} at {_isl(config)} and osl={osl} needs {need:,} tokens of KV cache; "
        f"{gpus} × {per_gpu:g} GB hold about {tokens:,} beside {config['target']['name']}: requests will wait or be preempted"
    )


def _head_length(config: Config) -> str | None:
    """Heads are trained up to a length; beyond it acceptance falls, even where the positions are there."""
    drafter, osl = config["drafter"], int(config["workload"]["osl"])
    limit = drafter.get("max_position_embeddings")
    if drafter["method"] != "eagle3" or not limit or workload_rules.longest_need(config) <= int(limit):
        return None
    return (
        f"{_isl(config)} and workload.osl={osl} pass the {limit} positions of drafter {drafter['name']} "
        "(drafter.max_position_embeddings): expect its acceptance to fall, or the engine to stop drafting"
    )


def _isl(config: Config) -> str:
    return f"isl={config['isl'] or 'natural'}"


_STARTED_BY = ("name", "version", "python", "command", "binary")  # keys of an engine that decide whether it can be started here


def _engine_is_missing(config: Config) -> str | None:
    """A warning: plans are made on other machines than the one that measures."""
    engine = config["engine"]
    reason = _launcher(engine["name"]).missing(engine) if config["cluster"]["kind"] == "local" else None
    return f"engine {engine['name']} cannot be started on this machine: {reason}" if reason else None


KV_SHARE = 0.9  # of a GPU's memory that engines take for weights and KV cache together
WARNINGS: tuple[Rule, ...] = (
    Rule("kv_capacity", "target.memory, cluster.gpu_memory_gb", _kv_capacity),
    Rule("head_length", "drafter.max_position_embeddings", _head_length),
    Rule("history_may_outgrow", "target.max_model_len", workload_rules.history_may_outgrow),
    Rule("drafter_is_captured", "the recorder counts what is verified", capture_rules.drafter_is_captured),
    Rule("logprobs_need_no_drafter", "log-probabilities are the target's", capture_rules.logprobs_need_no_drafter),
    Rule("kernels_route_themselves", "sglang/srt/layers/moe/topk.py: TopKOutputFormat", capture_rules.kernels_route_themselves),
)
RULES: tuple[Rule, ...] = (
    Rule("engine_only_attached", "the engine's launcher: attach_only", _engine_only_attached),
    Rule("engine_has_drafter", "the engine's launcher: drafters", _engine_has_drafter),
    Rule("draft_length_positive", "a draft of no tokens is plain decoding", _draft_length_positive),
    Rule("target_has_model", "prompts are token ids of the target", _target_has_model),
    Rule("drafter_has_model", "drafter.model", _drafter_has_model),
    Rule("target_has_mtp", "target.mtp_predict", _target_has_mtp),
    Rule("drafter_is_what_it_says", "the config.json of the drafter's checkpoint", _drafter_is_what_it_says),
    Rule("same_vocabulary", "target.vocab_size, drafter.vocab_size", _same_vocabulary),
    Rule("batch_fits_engine", "engine.max_batch", _batch_fits_engine),
    Rule("fits_context", "target.max_model_len", workload_rules.fits_context),
    Rule("enough_prompts", "a prompt seen twice is drafted from memory", _enough_prompts),
    Rule("chat_wire_needs_chat", "chat completions take messages, not tokens", _chat_wire_needs_chat),
    Rule("conversations_need_ids", "a history is made of the ids that were answered", workload_rules.conversations_need_ids),
    Rule("has_an_image", "engine.image, cluster.image", kubernetes.has_an_image),
    Rule("pod_is_right", "cluster.pod, engine.pod, target.pod", kubernetes.pod_is_right),
    Rule("gpus_fit_the_limit", "cluster.gpu_limits", kubernetes.gpus_fit_the_limit),
    Rule("capture_engine", "what each engine tells of its experts", capture_rules.engine_records),
    Rule("capture_sim", "the recorder is SGLang's", capture_rules.simulated_recorder),
    Rule("capture_files", "the recorder writes where the engine runs", capture_rules.files_are_here),
    Rule("capture_experts", "target.experts", capture_rules.target_has_experts),
    Rule("capture_drafts", "workload.osl", capture_rules.drafts_are_verified),
    Rule("capture_batch", "workload.prompts", capture_rules.batch_is_full),
    Rule("logprobs_engine", "what each wire can be asked for", capture_rules.engine_gives_logprobs),
    Rule("logprobs_sim", "the simulator's wires", capture_rules.simulated_logprobs),
    Rule("logprobs_target", "what an engine reports of accepted drafts", capture_rules.logprobs_are_the_targets),
    Rule("logprobs_temperature", "what an engine reports with a temperature", capture_rules.logprobs_mean_one_thing),
    Rule("capture_text", "the committed corpora, or the user's file", capture_rules.prompts_are_text),
)

# Rules over more than one cell, applied by the grid; here so that one list shows them all.
ENGINE_IS_MISSING = "engine_is_missing"  # a warning about an engine, not about its points
NO_SUCH_KEY = "no_such_key"  # an override names a key that this option of the group does not have
NOT_SET = "not_set"  # a value refers to a key that is null: a path that only the user can give
SAME_POINT = "same_point"  # the cells differ only in what names no point
ONE_SERVER = "one_server"  # an attached server is what it is: one engine, target, drafter and draft length
NONE_HAS_NO_DRAFT = "none_has_no_draft"  # drafter none is measured once, whatever the draft lengths and drafter settings


def broken(config: Config) -> Iterator[tuple[str, str]]:
    """(rule, reason) for everything that is wrong with this point."""
    for rule in RULES:
        reason = rule.check(config)
        if reason is not None:
            yield rule.name, reason
    if not _foreign(config):
        yield from _launcher(config["engine"]["name"]).check(config)


def warnings(configs: Iterable[Config]) -> tuple[str, ...]:
    """What a user should know of points that can run all the same: each rule once, with its first reason and how often it holds."""
    found: dict[str, dict[str, int]] = {}
    engines: dict[tuple[Any, ...], Config] = {}  # looked for on this machine once each, not once a point
    for config in configs:
        own = [(rule.name, reason) for rule in WARNINGS if (reason := rule.check(config)) is not None]
        for rule, reason in (*own, *_launcher(config["engine"]["name"]).warn(config)):
            reasons = found.setdefault(rule, {})
            reasons[reason] = reasons.get(reason, 0) + 1
        engines.setdefault(tuple(config["engine"].get(key) for key in _STARTED_BY), config)
    if absent := {reason: 1 for config in engines.values() if (reason := _engine_is_missing(config)) is not None}:
        found[ENGINE_IS_MISSING] = absent
    return tuple(_told(reasons) for reasons in found.values())


def _told(reasons: Mapping[str, int]) -> str:
    first, *others = reasons
    return first + (f" (and {sum(reasons[r] for r in others)} more points for like reasons)" if others else "")


def learns(config: Config) -> bool:
    """Whether this drafter, in this engine, remembers earlier answers."""
    return bool(_launcher(config["engine"]["name"]).stateful(config["drafter"]))


def _foreign(config: Config) -> bool:
    """The launcher's own check repeats what the rule above has said."""
    return bool(_launcher(config["engine"]["name"]).attach_only) and config["cluster"]["kind"] != "attach"


@cache
def _launcher(name: str) -> Any:
    from specsweep.orchestrator.engines import launcher

    return launcher(name)
