"""The simulator as an engine: a server of ours that speaks another engine's wire, with a model of a target on some hardware behind it.

It loads no weights. A target's tokenizer is all that is needed of it, so that prompts have their real lengths; a drafter is what the
model says of it. Which category a prompt is of decides what is accepted, and no request says it: the session hands over a file of
prompts (``wants_prompts``).

``facts`` says ``simulated`` whatever the server answers: that mark goes with every attempt, and nothing may lose it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specsweep.client.sim.model import PRESET_FOLDER, has_drafter, load_model, presets
from specsweep.client.sim.service_settings import STEP_TRUTH, VERSIONS
from specsweep.client.sim.settings import ModelError
from specsweep.client.sim.troubles import Troubles, read_troubles
from specsweep.client.sim.wire import ABOUT_PATH, WIRES
from specsweep.orchestrator.engines import EngineSpec, ModelFormat, SessionModels
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.identity import captures_routing

DEFAULT_PRESET = "tiny"
STEP_CLOCKS = {"llamacpp": "server"}  # tokens of one step come one by one; everywhere else a chunk is a step
DEFAULT_VOCABULARY = 128_256
DEFAULT_EXPERT_LAYERS = 24  # of a target whose file does not say how many of its layers have experts


class Sim:
    name = "sim"
    drafters = frozenset({"none", "ngram", "draft_model", "eagle3", "mtp", "dflash", "pard", "suffix"})
    attach_only = False
    model_format: ModelFormat = "tokenizer"
    in_our_image = True
    wants_prompts = True
    fact_paths = (ABOUT_PATH,)

    def check(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        engine = config["engine"]
        dialect, clock = engine["dialect"], engine["step_clock"]
        if dialect not in WIRES:
            return [("sim_dialect", f"engine.dialect={dialect}: the simulator speaks {', '.join(WIRES)}")]
        found = []
        if clock != (wanted := STEP_CLOCKS.get(dialect, "client")):
            found.append(
                ("sim_step_clock", f"engine.step_clock={clock} does not fit engine.dialect={dialect}; set engine.step_clock={wanted}")
            )
        if (truth := engine.get("step_truth")) is not None and truth not in STEP_TRUTH:
            found.append(("sim_step_truth", f"engine.step_truth={truth}: choose one of {', '.join(STEP_TRUTH)}"))
        try:
            model = load_model(
                _model(config), _head(config) or _method(config), topk=_topk(config), dialect=dialect, counter=bool(engine.get("counter"))
            )
            if captures_routing(config) and not model.target.expert_count:
                known = ", ".join(name for name in presets() if load_model(name).target.expert_count)
                found.append(
                    ("sim_experts", f"capture={config['capture']}: the model {model.name} is dense; set engine.preset to one of {known}")
                )
            read_troubles(engine.get("troubles"), "engine.troubles")
        except ModelError as error:
            found.append(("sim_model", str(error)))
        return found

    def missing(self, engine: Mapping[str, Any]) -> str | None:
        return None

    def stateful(self, drafter: Mapping[str, Any]) -> bool:
        return False  # its acceptance does not depend on earlier answers

    def warn(self, config: Mapping[str, Any]) -> list[tuple[str, str]]:
        return []

    def spec(self, config: Mapping[str, Any], models: SessionModels, *, n_ctx_per_slot: int) -> EngineSpec:
        engine, drafter = config["engine"], config["drafter"]
        drafting = drafter["method"] != "none"
        length = int(config["draft_length"]) if drafting else 0
        model = _model(config)
        shared = {
            "dialect": engine["dialect"],
            "max_batch": int(engine["max_batch"]),
            "max_batched_tokens": engine.get("max_batched_tokens"),
            "kv_tokens": engine.get("kv_tokens"),
            "step_truth": engine.get("step_truth") or "detailed",
            "speedup": float(engine.get("speedup") or 1.0),
            **({"counter": True} if engine.get("counter") else {}),
            "troubles": _troubles(engine),
            "seed": int(config.get("seed") or 0),
        }
        version = str(engine.get("version") or VERSIONS[engine["dialect"]])
        settings = {
            **shared,
            "model": model,
            "model_name": str(config["target"]["name"]),
            "version": version,
            "vocab_size": int(config["target"].get("vocab_size") or DEFAULT_VOCABULARY),
            "max_model_len": n_ctx_per_slot,
            "drafter": _method(config),
            **_arm(config),
            "draft_length": length,
            "prompts": "prompts.json",
        }
        capturing = captures_routing(config)
        if capturing:
            settings["expert_layers"] = int((config["target"].get("experts") or {}).get("layers") or DEFAULT_EXPERT_LAYERS)
        return EngineSpec(
            engine=self.name,
            argv=(sys.executable, "-m", "specsweep.client.sim.server", "{files}/server.json", "{port}", "{host}"),
            files={"server.json": json.dumps(settings, indent=2), "prompts.json": "{}"},
            model_name=str(config["target"]["name"]),
            version=version,
            port=engine.get("port"),
            startup_timeout_s=float(engine.get("startup_timeout_s") or 60.0),
            flags={**shared, "model_sha256": _content(model)},
            drafter_flags={"method": drafter["method"], "draft_length": length, **_arm(config)},
            unstable_flags={"max_model_len": n_ctx_per_slot},
            recorder_files=int(capturing),
        )

    def facts(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        about = answers.get(ABOUT_PATH)
        found = about if isinstance(about, dict) else {}
        kept = ("dialect", "model", "fit", "speedup", "counter", "experts_per_token")
        return {"simulated": True, **{key: found[key] for key in kept if key in found}}


def _model(config: Mapping[str, Any]) -> str:
    """The name of a preset, or the path of the user's file. Raises ModelError for both at once."""
    engine, target = config["engine"], str(config["target"]["name"])
    if engine.get("model") and engine.get("preset"):
        raise ModelError(f"engine.preset={engine['preset']} and engine.model={engine['model']}: give one of the two")
    if engine.get("model"):
        return str(Path(str(engine["model"])).expanduser().absolute())
    target = target.rpartition("/")[2]  # of a target in a folder of its own, such as sim/gpt-oss-120b
    preset = engine.get("preset") or (target if target in presets() else DEFAULT_PRESET)
    if preset not in presets():
        raise ModelError(f"engine.preset={preset} is not known; choose one of {', '.join(presets())}, or give engine.model=FILE")
    return str(preset)


def _method(config: Mapping[str, Any]) -> str:
    return str(config["drafter"]["method"])


def _head(config: Mapping[str, Any]) -> str:
    """The name of the drafter's file where the model describes a drafter of that name, such as ``eagle3_lmsys``; else its method serves."""
    name = str(config["drafter"].get("name") or "").rpartition("/")[2]
    return name if name != _method(config) and has_drafter(_model(config), name) else ""


def _topk(config: Mapping[str, Any]) -> int | None:
    topk = config["drafter"].get("topk")
    return int(topk) if topk and int(topk) > 1 else None


def _arm(config: Mapping[str, Any]) -> dict[str, Any]:
    """What says more of the drafter than its method."""
    found = {"head": _head(config), "topk": _topk(config)}
    return {key: value for key, value in found.items() if value}


def _troubles(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Those that were asked for."""
    usual = Troubles()
    return {name: value for name, value in (engine.get("troubles") or {}).items() if value != getattr(usual, name, None)}


def _content(model: str) -> str:
    path = Path(model) if Path(model).is_absolute() else PRESET_FOLDER / f"{model}.yaml"
    try:
        return _sha256(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise ConfigError(f"engine.model={model} cannot be read: {error.strerror}") from error


@functools.lru_cache
def _sha256(path: Path, mtime_ns: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


LAUNCHER = Sim()
