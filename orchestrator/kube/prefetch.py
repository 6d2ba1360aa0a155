"""Fetches the models of a plan onto the weights volume: which ones, and the program that does it in the cluster.

    python -m specsweep.orchestrator.kube.prefetch models.json /weights

Every model once, in the format that its engine loads, where the engines and the sweep look for it. What was fetched completely is noted
beside it (which files, how large), so that a second time costs a look at the files and not a word with the hub, as long as the revision is
a commit: a branch may have moved on.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsweep.k8s import names
from specsweep.k8s.errors import SpecError, StartError, StartRetryable
from specsweep.k8s.outcomes import GAVE_UP
from specsweep.k8s.specs import ClaimMount, PrefetchSpec, Program
from specsweep.orchestrator.durable import make_dirs, replace_file
from specsweep.orchestrator.engines import launcher
from specsweep.orchestrator.errors import ClusterRetryable, ClusterTerminal, ConfigError, SpecsweepError
from specsweep.orchestrator.kube.outcomes import joined
from specsweep.orchestrator.kube.settings import Settings
from specsweep.orchestrator.kube.specs import HUB_CACHE, fingerprint, hub_token, placement

FILE = "models.json"
NOTES = "prefetched"  # folder of the notes, below the volume
SAY_S = 10.0
KEPT_S = 86400  # the Job, for those who look
GIGABYTE = 1e9
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """``weights``: of a hub repository, everything and not only what prompts are made with."""

    name: str
    spec: Mapping[str, Any]
    weights: bool

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps([dict(self.spec), self.weights], sort_keys=True, default=str).encode()).hexdigest()[:16]


def models_of(configs: Iterable[Mapping[str, Any]]) -> list[Wanted]:
    """Of sessions' configs: each model once, in the order in which they are needed first; with its weights if any engine loads them."""
    from specsweep.orchestrator.models import in_format

    found: dict[str, Wanted] = {}
    for config in configs:
        form = launcher(str(config["engine"]["name"])).model_format
        for role in ("target", "drafter"):
            group = config[role]
            if not group.get("model") or (role == "drafter" and form == "tokenizer"):
                continue
            spec = dict(in_format(group["model"], form))
            if spec.get("convert", "") is None and spec.get("source") != "package_data":  # whose default is to be converted
                del spec["convert"]
            key = json.dumps(spec, sort_keys=True, default=str)
            weights = form != "tokenizer" or (key in found and found[key].weights)
            found[key] = Wanted(f"{role} {group['name']}", spec, weights)
    return list(found.values())


def prefetch_spec(sweep: str, wanted: Sequence[Wanted], settings: Settings, *, namespace: str) -> PrefetchSpec:
    """Raises ConfigError naming the field that is missing or wrong."""
    image = settings.own_image
    if settings.weights is None:
        raise ConfigError("cluster.weights.claim is not set; name the PersistentVolumeClaim of the models: cluster.weights.claim=NAME")
    pod = settings.sweep
    models = [{"name": model.name, "spec": dict(model.spec), "weights": model.weights} for model in wanted]
    try:
        return PrefetchSpec(
            name=names.object_name(f"prefetch-{sweep}", fingerprint(sweep)),
            namespace=namespace,
            labels=names.labels("prefetch", sweep=sweep),
            program=Program(
                image=image,
                argv=("python", "-m", "specsweep.orchestrator.kube.prefetch", f"{{files}}/{FILE}", settings.weights.path),
                cpu=str(pod.get("cpu") or 1),
                memory=str(pod.get("memory") or "4Gi"),
                env={
                    "HF_HUB_CACHE": f"{settings.weights.path}/{HUB_CACHE}",
                    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
                    "HF_HUB_DISABLE_TELEMETRY": "1",
                    "PYTHONUNBUFFERED": "1",
                },
                secret_env=hub_token(settings),
                files={FILE: json.dumps(models, indent=1, sort_keys=True, default=str)},
                claims=(ClaimMount(settings.weights.claim, settings.weights.path, read_only=False),),
                run_as_user=pod.get("run_as_user"),
            ),
            placement=placement(pod, settings),
            ttl_s=KEPT_S,
            final_codes=(ConfigError.exit_code,),
        )
    except SpecError as error:
        raise ConfigError(f"prefetch for sweep {sweep}: {error.message} (cluster.sweep, cluster.weights)") from error


def as_error(error: StartError) -> SpecsweepError:
    """Why a download ended, for people. Of its evidence they get what it wrote and what happened to its pod, unless it said all itself."""
    if error.kind == GAVE_UP:
        return ConfigError(error.message)
    found: type[SpecsweepError] = ClusterRetryable if isinstance(error, StartRetryable) else ClusterTerminal
    told = {name: text for name, text in error.evidence.items() if not name.endswith(".json")}
    return found(error.message, evidence=joined(told))


# -- in the cluster


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 when every model is there. One that cannot be had does not keep the others away."""
    file, home = (sys.argv[1:] if argv is None else argv)[:2]
    wanted = [Wanted(m["name"], m["spec"], bool(m["weights"])) for m in json.loads(Path(file).read_text(encoding="utf-8"))]
    code = 0
    failed = []
    for i, model in enumerate(wanted, start=1):
        title = f"[{i}/{len(wanted)}] {model.name}"
        try:
            fetch(model, Path(home), lambda words, title=title: _say(f"{title}: {words}"))  # type: ignore[misc]
        except SpecsweepError as error:
            _say(f"{title}: {error.message}")
            failed.append(f"{model.name}: {error.message.splitlines()[0]}")
            code = error.exit_code
    if failed:
        _say(f"{len(failed)} of {counted(len(wanted))} could not be had: " + "; ".join(failed))
    else:
        _say("the model is there" if len(wanted) == 1 else f"all {len(wanted)} models are there")
    return code


def fetch(model: Wanted, home: Path, say: Callable[[str], None]) -> None:
    """Raises ConfigError if it cannot be had."""
    from specsweep.orchestrator.models import ensure_model

    note = home / NOTES / f"{model.key}.json"
    if (size := _complete(model, note)) is not None:
        say(f"is there already ({size / GIGABYTE:.1f} GB)")
        return
    began = time.monotonic()
    with _growth_told(home, say):
        found = ensure_model(model.spec, home, progress=say, weights=model.weights)
    files = {str(path): path.stat().st_size for path in _files(found.path)}
    make_dirs(note.parent)
    replace_file(note, json.dumps({"spec": dict(model.spec), "files": files}, indent=1, default=str) + "\n")
    say(f"complete: {sum(files.values()) / GIGABYTE:.1f} GB after {time.monotonic() - began:.0f} s")


def _complete(model: Wanted, note: Path) -> int | None:
    """Bytes of a model of which every file that was noted is there as it was; None if it has to be fetched, or looked up."""
    if model.spec.get("source") == "hub" and not _COMMIT.fullmatch(str(model.spec.get("revision"))):
        return None
    try:
        files: Mapping[str, int] = json.loads(note.read_text(encoding="utf-8"))["files"]
        return sum(files.values()) if files and all(Path(path).stat().st_size == size for path, size in files.items()) else None
    except (OSError, ValueError, KeyError, AttributeError):
        return None


def _files(path: Path) -> Iterator[Path]:
    yield from (file for file in sorted(path.rglob("*")) if file.is_file()) if path.is_dir() else (path,)


@contextmanager
def _growth_told(home: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Says every ten seconds how much was fetched so far, while the block runs."""
    ended = threading.Event()
    before = _size(home)

    def tell() -> None:
        last, last_at = before, time.monotonic()
        while not ended.wait(SAY_S):
            now, now_at = _size(home), time.monotonic()
            say(f"{(now - before) / GIGABYTE:.2f} GB so far, {(now - last) / GIGABYTE / (now_at - last_at):.2f} GB/s")
            last, last_at = now, now_at

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def _size(home: Path) -> int:
    """Bytes below ``home``, unfinished files included, links not."""
    total = 0
    for path in home.rglob("*"):
        try:
            total += 0 if path.is_symlink() or not path.is_file() else path.stat().st_size
        except OSError:  # renamed just now
            continue
    return total


def counted(models: int) -> str:
    return f"{models} model{'' if models == 1 else 's'}"


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
