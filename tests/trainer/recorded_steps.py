"""Steps of a learner that a recorder keeps, without a controller. Run as a process: one rank of
two.

python -m tests.trainer.recorded_steps MODEL FOLDER [slow | hung]    with torchrun's environment
variables; slow, hung: the disk
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event

from rollcast.config.run import RunConfig
from rollcast.rollouts.records import GradingStatus, PromptTask, RolloutGroup
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import join_ranks
from rollcast.trainer.recorder.step_recorder import StepRecorder
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_task
from tests.trainer.tiny_models import make_config, make_groups


def recording_config(model: Path, folder: Path, **record: object) -> RunConfig:
    return make_config(
        model,
        folder,
        record={"every_steps": 1, "weights": "step", **record},
        recipe={
            "max_prompt_tokens": 32,
            "max_completion_tokens": 64,
            "length_control": {"kind": "none"},
            "optimizer": {"learning_rate": 1e-3, "warmup_steps": 0, "epsilon": 1e-8},
        },
    )


def find_task(group: RolloutGroup) -> PromptTask:
    return make_task(group.sequence, prompt_token_ids=group.prompt_token_ids)


def make_recorder(config: RunConfig, learners: LearnerGroup, exporter: Exporter) -> StepRecorder:
    return StepRecorder(learners, exporter, find_task, max_staleness=8)


def graded_groups(seed: int) -> list[RolloutGroup]:
    groups = make_groups(seed)
    for group in groups:
        for rollout in group.rollouts:
            rollout.grading_status = GradingStatus.OK if rollout.reward else GradingStatus.WRONG
    return groups


def record_steps(
    config: RunConfig, learners: LearnerGroup, recorder: StepRecorder, steps: Sequence[int]
) -> None:
    for number in steps:
        groups = graded_groups(number)
        sequences = assemble(groups, config.recipe).sequences
        recorder.begin(PolicyVersion(1, number), groups, sequences, None)
        recorder.end(learners.update(sequences))


@contextmanager
def slow_disk(recorder: StepRecorder) -> Iterator[None]:
    """The disk takes nothing until the end, and the weights of one version fill what may wait."""
    recorder._weight_bytes = 2 << 30
    is_over = Event()
    recorder._submit("", is_over.wait)
    yield
    is_over.set()


@contextmanager
def hung_disk(recorder: StepRecorder) -> Iterator[None]:
    """The write of the weights 1.1 never returns: nothing reads the pipe in the file's place."""
    settled = Event()
    recorder._submit("", settled.set)
    assert settled.wait(60)
    os.mkfifo(recorder._store.run_folder / "recorded" / "weights" / "1.1.tmp")
    yield


def main() -> None:
    model, folder, *disk = sys.argv[1:]
    config = recording_config(Path(model), Path(folder))
    ranks = join_ranks(timeout_seconds=30, threads=1)
    learners = LearnerGroup.build(config, ranks)
    if ranks.rank > 0:
        assert learners.follow() is TrainerEnding.FINISHED
    else:
        exporter = Exporter("test")
        recorder = make_recorder(config, learners, exporter)
        disks = {"slow": slow_disk, "hung": hung_disk}
        with disks[disk[0]](recorder) if disk else nullcontext():
            record_steps(config, learners, recorder, range(4 if disk else 2))
        recorder.close(2.0 if disk == ["hung"] else 60.0)
        print(exporter.render().decode())
        learners.stop(TrainerEnding.FINISHED)
    ranks.leave()


if __name__ == "__main__":
    main()
