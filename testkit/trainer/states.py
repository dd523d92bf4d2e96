"""A trainer's state, and its reports, for tests of single parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollcast.config.recipe import Recipe
from rollcast.config.run_end import Budget
from rollcast.recipe.curriculum import Curriculum
from rollcast.runfolder.files import COMPUTE
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.compute import ComputeLedger
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.control.state import SurvivingHistory, TrainerState
from rollcast.wire.version import PolicyVersion


def make_state(folder: Path = Path("none"), **changes: Any) -> TrainerState:
    """The state of a first incarnation at step 0, without a checkpoint, with these changes."""
    parts: dict[str, Any] = {
        "folder": folder,
        "budget": Budget(),
        "history": SurvivingHistory((), 1),
        "progress": Progress(),
        "curriculum": Curriculum(["a"], seed=0),
        "ledger": Ledger(),
        "compute": ComputeLedger(folder / COMPUTE),
        "published": PolicyVersion(1, 0),
        "checkpoint": PolicyVersion(0, -1),
    }
    return TrainerState(**(parts | changes))


def make_reporter(folder: Path, exporter: Exporter) -> Reporter:
    """Reporter of a run without prompts; `folder` exists."""
    prompts: Any = None
    return Reporter(make_state(folder), exporter, prompts, Recipe(), max_staleness=8, max_bytes=1)
