"""What `specsweep plan cluster=kubernetes` shows besides: which GPUs, how many at once, for how many GPU-hours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specsweep.orchestrator.cli.plan import duration, seconds_left
from specsweep.orchestrator.identity import Contents
from specsweep.orchestrator.kube.forecast import Forecast, forecast, shown
from specsweep.orchestrator.kube.settings import Settings, need_of
from specsweep.orchestrator.kube.submission import contents_outside
from specsweep.orchestrator.points import Plan, Session


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    settings: Settings

    @staticmethod
    def of(base: Mapping[str, Any]) -> ClusterPlan:
        """Raises ConfigError for settings that cannot be right."""
        return ClusterPlan(Settings.of(base))

    def contents(self) -> Contents:
        return contents_outside(self.settings)

    def gpus(self, session: Session) -> str:
        return shown(need_of(session.config))

    def forecast(self, plan: Plan, missing: set[str]) -> Forecast:
        return forecast(plan.sessions, self.settings, lambda session: seconds_left(session, missing))

    def lines(self, plan: Plan, missing: set[str], guessed: set[str]) -> list[str]:
        """For people. Where the time of a point is a mere guess, GPU-hours are none either."""
        found = self.forecast(plan, missing)
        if not found.most_sessions:
            return []
        known = not guessed & missing
        lines = []
        for usage in found.usage:
            hours = f"about {usage.gpu_s / 3600:.2g} GPU-hours" if known else "GPU-hours unknown, as the time is"
            name = usage.product or "GPU of any product (cluster.pod.gpu_product names one)"
            sessions = f"{usage.sessions} session{'' if usage.sessions == 1 else 's'}"
            lines.append(f"{name}: {sessions}, at most {usage.most_gpus} GPU{'' if usage.most_gpus == 1 else 's'} at once, {hours}")
        if not found.usage:
            lines.append("no GPU is asked for (target.gpus, cluster.pod.gpus)")
        at_once = f"at most {found.most_sessions} session{'' if found.most_sessions == 1 else 's'} at once"
        waits = f"; {duration(found.elapsed_s)} from start to end if nodes are free" if known and found.most_sessions > 1 else ""
        queue = f"; through queue {self.settings.queue} of Kueue" if self.settings.queue else ""
        return [*lines, f"{at_once} (cluster.max_parallel_sessions={self.settings.max_parallel_sessions}){queue}{waits}"]

    def document(self, facts: Mapping[str, Any], plan: Plan, missing: set[str], guessed: set[str]) -> dict[str, Any]:
        """The plan as JSON with what the cluster will be asked for."""
        found = self.forecast(plan, missing)
        known = not guessed & missing
        needs = {session.session_id: need_of(session.config) for session in plan.sessions}
        sessions = [{**s, "gpus": needs[s["session_id"]].gpus, "gpu_product": needs[s["session_id"]].product} for s in facts["sessions"]]
        cluster = {
            "sessions_at_once": found.most_sessions,
            "elapsed_s": found.elapsed_s if known else None,
            "gpus": [
                {
                    "product": usage.product,
                    "sessions": usage.sessions,
                    "gpus_at_once": usage.most_gpus,
                    "gpu_hours": usage.gpu_s / 3600 if known else None,
                }
                for usage in found.usage
            ],
        }
        return {**facts, "sessions": sessions, "cluster": cluster}
