"""Checkpoints of the run, written while training goes on, and the groups on the queue that are held
for them.
"""

import time
from concurrent.futures import Future
from dataclasses import dataclass

from rollcast.runfolder.files import Place
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.control.state import TrainerState
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.wire.version import PolicyVersion


@dataclass(frozen=True, slots=True)
class CheckpointUnderWay:
    version: PolicyVersion
    started_at: float
    """Monotonic seconds."""
    write_future: Future[Place]
    releasable_groups: dict[int, str]
    """Groups that no restart needs once it is on the disk: task sequence -> stream id."""


@dataclass(eq=False)
class Checkpoints:
    """One checkpoint is under way at most.

    Groups held for the one before are released once it is on the disk.
    """

    _state: TrainerState
    _learners: LearnerGroup
    _intake: Intake
    _reporter: Reporter
    _every_steps: int
    _under_way: CheckpointUnderWay | None = None

    def begin_if_due(self) -> None:
        if self._state.progress.step % self._every_steps == 0:
            self.begin()

    def begin(self) -> None:
        """Copy weights, optimizer and progress, and write them in the background; waits for the one
        before.
        """
        self.wait_written()
        started_at = time.monotonic()
        version = self._state.version
        write_future = self._learners.save(version, self._state.progress_to_save().as_json())
        self._reporter.checkpoint_begun(version)
        # A copy: groups that are settled from now on are held for the next checkpoint.
        self._under_way = CheckpointUnderWay(
            version, started_at, write_future, dict(self._state.ledger.held)
        )
        self._state.checkpoint = version  # from now on groups that it could use are held

    def wait_written(self) -> None:
        """Wait until the checkpoint under way, if any, is on the disk, and release its groups."""
        under_way = self._under_way
        if under_way is None:
            return
        self._under_way = None
        under_way.write_future.result()
        self._reporter.checkpoint_written(
            under_way.version, time.monotonic() - under_way.started_at
        )
        # A restart from this checkpoint then finds device-hours that are not older.
        self._state.compute.save()
        self._intake.done_with(under_way.releasable_groups.values())
        for sequence in under_way.releasable_groups:
            self._state.ledger.held.pop(sequence, None)

    def release_if_written(self) -> None:
        if self._under_way is not None and self._under_way.write_future.done():
            self.wait_written()
