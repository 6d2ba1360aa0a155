"""What `specsweep status` shows of sweeps, wherever they run: one page, of a store on this machine or of sweeps in a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specsweep.orchestrator.progress import clock
from specsweep.orchestrator.sweep_status import Problem, SweepStatus

if TYPE_CHECKING:
    from rich.console import RenderableType

    from specsweep.orchestrator.kube.remote_status import Placed

COLOURS = {"running": "cyan", "finished": "green", "stopped": "yellow", "not started": "dim", "failed": "red", "invalid": "yellow"}


def page(
    found: Sequence[SweepStatus], unreadable: Mapping[str, str], *, detail: bool, placed: Sequence[Placed] | None = None
) -> RenderableType:
    """``placed``: where each of ``found`` is in a cluster, None for sweeps of this machine."""
    from rich.console import Group
    from rich.text import Text

    blocks: list[Any] = []
    for i, status in enumerate(found):
        where = _placed(placed[i], detail=detail) if placed is not None else []
        blocks += [*_head(status), *where, *(_detail(status, here=placed is None) if detail else []), ""]
    for name, reason in unreadable.items():
        blocks += [Text.assemble((name, "bold"), "  ", ("unreadable", "red"), f" · {reason}"), ""]
    return Group(*blocks[:-1])


def _head(status: SweepStatus) -> list[Any]:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    line = Text.assemble(
        (status.sweep, "bold"), "  ", (status.state, COLOURS[status.state]), f" · {status.measured} of {status.points} points measured"
    )
    if status.simulated:
        line.append(" · SIMULATED", style="bold red")
    for count, word in ((status.invalid, "invalid"), (status.failed, "failed")):
        if count:
            line.append(f" · {count} {word}", style=COLOURS[word])
    if status.missing:
        of_them = "" if status.repeat == status.missing else f"{status.repeat} of them "
        line.append(f" · {status.missing} missing" + (f" ({of_them}to repeat: failed before)" if status.repeat else ""))
    if status.state != "running" and status.failed and not status.measured:
        line.append(" · no point could be measured")  # nor is anything known of how long it would take
    elif status.left_s is not None:
        line.append(f" · about {clock(status.left_s)} left" if status.state == "running" else f" · about {clock(status.left_s)} to run")
    if status.earlier:
        line.append(f" · {status.earlier} more of earlier plans", style="dim")
    blocks: list[Any] = [line, Group(ProgressBar(total=max(1, status.points), completed=status.measured, width=60), "")]
    if status.now is not None:
        blocks.append(Text.assemble("now: ", (status.now, "cyan"), f", for {clock(status.now_s or 0)}"))
    if status.state == "running" and status.writer is not None:
        blocks.append(Text(f"run by pid {status.writer.get('pid')} on {status.writer.get('host')}", style="dim"))
    return blocks


def _placed(placed: Placed, *, detail: bool) -> list[Any]:
    from rich.text import Text

    where = f", pod {placed.pod} on {placed.node or 'no node yet'}" if placed.pod else ""
    job = f"Job {placed.job}{where}: " if placed.job else ""
    blocks: list[Any] = [Text.assemble(f"in namespace {placed.namespace}: {job}", (placed.state, "cyan"))]
    if detail and placed.engines:
        rows = [(e.name, e.drafter, e.gpus or "–", e.node or "–", e.session, e.state) for e in placed.engines]
        blocks += ["", _table(("engine", "drafter", "GPUs", "node", "session", "state"), rows, right=(2,))]
    return blocks


def _detail(status: SweepStatus, *, here: bool) -> list[Any]:
    """``here``: the results lie on this machine, and a path leads to them."""
    from rich.text import Text

    blocks: list[Any] = []
    if status.sessions:
        rows = [(s.what, str(s.points), str(s.measured), str(s.failed or "–"), str(s.missing or "–")) for s in status.sessions]
        blocks += ["", _table(("session", "points", "measured", "failed", "missing"), rows, right=(1, 2, 3, 4))]
    if status.problems:
        groups = by_reason(status.problems)
        problems = [(_points(g), Text(g[0].state, style=COLOURS[g[0].state]), Text(g[0].reason), g[0].point_id[:16]) for g in groups]
        blocks += ["", _table(("point", "state", "why", "point_id"), problems)]
        known = "everything that is known of the first"
        kept = f"{known}: {status.problems[0].path}" if here else f"{known} is in its run in MLflow and among the results, by its point_id"
        blocks.append(Text(kept, style="dim"))
    if status.measure_invalid is not None:
        blocks.append(Text(f"invalid points are not measured again unless asked for: {status.measure_invalid}"))
    if status.events:
        events = [(str(e.get("t_utc", "")), str(e.get("kind", "")), Text(_facts(e))) for e in status.events]
        blocks += ["", _table(("last events", "", ""), events)]
    if status.mlflow_behind is not None:
        blocks += ["", Text(f"MLflow was away and lacks results; catch up with: {status.mlflow_behind}", style="yellow")]
    if status.damaged:
        blocks += ["", Text("cannot be read:", style="red"), *(Text(d) for d in status.damaged)]
    return blocks


def by_reason(problems: Sequence[Problem]) -> list[list[Problem]]:
    """Those with one cause together: eighteen points that miss the same model are one thing to mend."""
    groups: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        groups.setdefault((problem.state, problem.reason), []).append(problem)
    return list(groups.values())


def _points(group: Sequence[Problem]) -> str:
    if len(group) <= 2:
        return "\n".join(problem.point for problem in group)
    return f"{len(group)} points: {group[0].point}\n… {group[-1].point}"


def _facts(event: Any) -> str:
    shown = {k: str(v)[:16] if k.endswith("_id") else v for k, v in event.items() if k not in ("t_utc", "kind")}
    text = " ".join(f"{k}={len(v)} ids" if isinstance(v, list) else f"{k}={v}" for k, v in shown.items())
    return text if len(text) <= 160 else text[:159] + "…"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[int] = ()) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(c) if isinstance(c, str) else c for c in row))  # plain: no markup in what others wrote
    return table
