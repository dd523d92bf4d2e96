"""State that the parts of a controller share: step, versions, dispatched tasks, device-hours."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from rollcast.config.services import Budget
from rollcast.recipe.curriculum import Curriculum
from rollcast.recipe.mixture import MixtureCurriculum
from rollcast.trainer.control.compute import ComputeLedger
from rollcast.trainer.control.history import SurvivingHistory
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.progress import Progress
from rollcast.wire.version import PolicyVersion


@dataclass(slots=True)
class TrainerState:
    """One incarnation of the trainer. Only the main thread changes it; `resume_state` makes it.

    The publisher's thread reads `ledger` when a generator is removed (`Fleet.fence`).
    """

    folder: Path
    """The run's folder."""
    budget: Budget
    history: SurvivingHistory
    progress: Progress
    """Step, trained tokens and evaluations of the surviving history; goes into checkpoints."""
    curriculum: Curriculum | MixtureCurriculum
    ledger: Ledger
    compute: ComputeLedger
    published: PolicyVersion
    """Newest version that was published, so no generator holds a newer one."""
    checkpoint: PolicyVersion
    """Newest checkpoint that was begun or resumed from. Its step is -1 without a checkpoint."""
    steps_since_start: int = 0
    last_round_at: float = field(default_factory=time.monotonic)
    """When the loop last began a round, in monotonic seconds; /healthz reports a loop that hangs."""

    @property
    def incarnation(self) -> int:
        return self.history.incarnation

    @property
    def version(self) -> PolicyVersion:
        """Version of the trainer's weights, published or not."""
        return PolicyVersion(self.incarnation, self.progress.step)

    @property
    def is_budget_spent(self) -> bool:
        steps = self.budget.steps
        device_hours = self.budget.device_hours
        if steps is not None and self.progress.step >= steps:
            return True
        return device_hours is not None and self.compute.total_state >= device_hours

    def is_in_checkpoint(self, version: PolicyVersion) -> bool:
        """Whether the newest checkpoint's weights descend from `version`."""
        if version.incarnation != self.incarnation:
            return self.history.survives(version)
        return self.checkpoint.incarnation == self.incarnation and version.step <= self.checkpoint.step

    def progress_to_save(self) -> Progress:
        """`progress`, with everything else that a checkpoint holds brought up to date."""
        progress = self.progress
        progress.incarnation = self.incarnation
        progress.earlier = [list(pair) for pair in self.history.earlier]
        progress.compute_state = dict(self.compute.state)
        progress.start_up = self.compute.total_start_up
        progress.ledger = self.ledger.state()
        progress.curriculum = self.curriculum.state()
        return progress
