"""One rank of the learner alone, in a process that watches its own memory."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from transformers.models.qwen3 import modeling_qwen3
from transformers.models.qwen3_moe import modeling_qwen3_moe

from benchmarks.memory.cases import run_config, sequences
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.build import build_learner
from rollcast.trainer.learner.commands import CommandKind, RankCommand
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks, join_ranks
from rollcast.wire.version import PolicyVersion

PATIENCE_SECONDS = 600.0
MOMENTS = {CommandKind.UPDATE: "step", CommandKind.STAGE: "publish", CommandKind.SAVE: "checkpoint"}


class Watch:
    """Most resident bytes of this process in each moment, above the amount after the imports; the
    last time counts.

    Pages of files are left out: the kernel takes those of libraries back while memory is short.
    """

    def __init__(self) -> None:
        self.baseline = _resident("RssAnon")
        self.most: dict[str, int] = {}

    @contextlib.contextmanager
    def during(self, moment: str) -> Iterator[None]:
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): the peak is reset
        yield
        self.most[moment] = _resident("VmHWM") - _resident("RssFile") - self.baseline


class WatchedGroup(LearnerGroup):
    watch: Watch

    def _carry_out(self, command: RankCommand) -> None:
        with self.watch.during(MOMENTS[command.kind]):
            super()._carry_out(command)
            self.saver.wait_written()


def _resident(field: str) -> int:
    (line,) = [
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith(f"{field}:")
    ]
    return int(line.split()[1]) << 10


def run(case: str, model: Path, folder: Path, rank: int, ranks: int, port: int) -> None:
    """The process; writes FOLDER/rank-RANK.json."""
    assert modeling_qwen3, modeling_qwen3_moe  # Transformers imports them when a model is made
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    joined = join_ranks(timeout_seconds=PATIENCE_SECONDS, threads=1)
    watch = go_through(case, model / case, folder / case, joined)
    (folder / f"rank-{rank}.json").write_text(json.dumps(watch.most))
    joined.leave()


def go_through(case: str, model: Path, folder: Path, ranks: Ranks) -> Watch:
    watch, config = Watch(), run_config(case, model, folder)
    with watch.during("start"):
        learner = build_learner(config.model, config.recipe, config.trainer, ranks)
    group = WatchedGroup(config, learner)
    group.reserve()
    group.watch = watch
    if ranks.rank == 0:
        drive(group, case)
    else:
        assert group.follow() is TrainerEnding.FINISHED
    return watch


def drive(group: WatchedGroup, case: str) -> None:
    """Both snapshots come into being first; then a step, a publication and a checkpoint are
    watched.
    """
    watch, ranks = group.watch, group.ranks

    def publish(step: int) -> None:
        with watch.during("publish"):
            group.stage(step % 2, PolicyVersion(1, step))

    publish(1)
    publish(2)
    with watch.during("step"):
        group.update(sequences(case, ranks.world_size, micro_batches=2))
    publish(3)
    with watch.during("checkpoint"):
        group.save(PolicyVersion(1, 2), {}).result()
    group.stop(TrainerEnding.FINISHED)
