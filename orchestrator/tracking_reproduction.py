"""The files of a reproduction on the sweep's parent run in MLflow, so that who looks at the runs finds the verdicts beside them.

Nothing is made here: a sweep that MLflow does not know has no run to put them on, and `specsweep sync` brings it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specsweep.orchestrator.errors import TrackingError
from specsweep.orchestrator.fields import missing_database_folder
from specsweep.orchestrator.tracking_mlflow import connect, shown
from specsweep.orchestrator.tracking_projection import ROLE

FOLDER = "reproduce"


def log_files(sweep: str, files: Sequence[Path], uri: str) -> bool:
    """Puts the files under ``reproduce/`` of the sweep's run; False if MLflow at ``uri`` has none. Raises ``TrackingError`` if it is away."""
    path = Path(uri.removeprefix("sqlite:///"))
    if uri.startswith("sqlite:///") and (missing_database_folder(uri) is not None or not path.exists()):
        return False
    try:
        client = connect(uri)
        experiment = client.get_experiment_by_name(sweep)
        if experiment is None or experiment.lifecycle_stage == "deleted":
            return False
        runs = client.search_runs([experiment.experiment_id], f"tags.{ROLE} = 'sweep'", max_results=1)
        for run in runs:
            for file in files:
                client.log_artifact(run.info.run_id, str(file), FOLDER)
        return bool(runs)
    except TrackingError:
        raise
    except Exception as error:  # MLflow raises its own, SQLAlchemy's and requests' errors
        raise TrackingError(f"MLflow at {shown(uri)}: {type(error).__name__}: {error}") from error
