"""After `make demo`: every point is measured or carries its reason, the report can be read offline, and nothing still runs."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import psutil

from specsweep.orchestrator.store import Store

OURS = ("llamacpp_server", "raylet", "gcs_server", "ray::", "ClientActor")


def main(root: Path, make_code: int) -> int:
    view = Store(root).sweep("quickstart")
    problems = []
    for point_id in view.current:
        attempt = view.latest.get(point_id)
        if attempt is None:
            problems.append(f"point {point_id[:16]} has no attempt")
        elif not attempt.measured and not attempt.point.get("error"):
            problems.append(f"point {point_id[:16]} failed without a reason")
    measured = sum(a.measured for a in view.latest.values())
    valid = sum(a.valid for a in view.latest.values())
    if len(view.current) != 18 or measured < 18:
        problems.append(f"{measured} of {len(view.current)} points were measured; the quickstart has 18")
    if make_code and valid == measured == 18:
        problems.append(f"make demo ended with {make_code} though every point is valid")
    folder = root / "sweeps" / "quickstart"
    report = folder / "report.html"
    text = report.read_text() if report.exists() else ""
    if "<svg" not in text:
        problems.append(f"{report} is missing or has no figure")
    if loads := re.findall(r"""(?:src|href)=["'](https?:[^"']+)""", text):
        problems.append(f"the report is not self-contained: {loads[:3]}")
    if not list(folder.glob("*.png")):
        problems.append(f"no PNG in {folder}")
    time.sleep(2)
    left = [p for p in psutil.process_iter(["pid", "cmdline"]) if any(word in " ".join(p.info["cmdline"] or []) for word in OURS)]
    problems += [f"still running: {p.info['pid']} {' '.join(p.info['cmdline'])[:120]}" for p in left]
    print(f"demo: {measured} of {len(view.current)} points measured, {valid} valid")
    for problem in problems:
        print(f"demo: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
