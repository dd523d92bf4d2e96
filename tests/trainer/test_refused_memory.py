"""Allocations of a learner that are refused, by the operating system itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from rollcast.config.errors import EXIT_USER_ERROR
from tests.trainer.tiny_models import write_model

PROGRAM = """
import gc, resource, sys
from pathlib import Path
import psutil
from rollcast.config.errors import UserError
from rollcast.trainer.learner.build import build_learner
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import join_ranks
from rollcast.wire.version import PolicyVersion
from tests.trainer.tiny_models import make_config, make_sequences

ROOM = 8 << 20
folder = Path(sys.argv[2])
ranks = join_ranks(timeout_seconds=30, threads=1)
config = make_config(Path(sys.argv[1]), folder)
hard = resource.getrlimit(resource.RLIMIT_AS)[1]

def without_room(what, action) -> None:
    for attempt in range(10):  # a thread that ends meanwhile leaves room, now and then enough
        gc.collect()  # what it frees meanwhile would be room
        resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + ROOM, hard))
        try:
            action()
        except UserError as error:
            print(error.exit_code, what, error)
            return
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))

without_room("start:", lambda: LearnerGroup.build(config, ranks))
learner = build_learner(config.model, config.recipe, config.trainer, ranks)
without_room("slots:", lambda: LearnerGroup(config, learner))
group = LearnerGroup(config, learner)
without_room("save:", group.reserve)
# What was half taken usually ends with its process.
group = LearnerGroup(config, build_learner(config.model, config.recipe, config.trainer, ranks))
group.reserve()
group.update(make_sequences(0, num_groups=1))
checkpoint = group.save(PolicyVersion(1, 2), {}).result()
without_room("restore:", lambda: group.restore(checkpoint))
without_room("take:", lambda: group.take_weights(checkpoint))
without_room("update:", lambda: group.update(make_sequences(0, num_groups=1)))
"""
STAGED = (
    "what this rank stages for the generators, versions of its rows in host memory, does not fit"
)
SENTENCES = {
    "start": r"this rank's share of model.path = '.*' does not fit.*; give the trainer more ranks",
    "slots": rf"{STAGED}.*; give the trainer more ranks",
    "save": (
        r"the copy of weights and optimizer that a checkpoint is written from does not fit.*; give "
        r"the trainer .*"
    ),
    "restore": (
        r"this rank's part of the checkpoint .*1\.2 does not fit.*; give the trainer more "
        r"ranks"
    ),
    "take": (
        r"this rank's part of the checkpoint .*1\.2 \(model.from_run\) does not fit.*; give the "
        r"trainer more ranks"
    ),
    "update": r"an update does not fit.*; lower trainer.tokens_per_micro_batch \(now 120\), "
    r"set trainer.activation_checkpointing, or give the trainer more ranks",
}


def test_what_did_not_fit_is_told_in_one_sentence(tmp_path: Path) -> None:
    """Embeddings and head of 35 MB each, in 8 MB; glibc gives what is
    of such a size back at once.
    """
    model = write_model(tmp_path / "model", vocab=270_000)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(model), str(tmp_path)],
        # One arena: each further one has 64 MB of address space in reserve, which would be room
        # that no limit counts.
        env={
            "PYTHONPATH": ":".join(sys.path),
            "OMP_NUM_THREADS": "1",
            "MALLOC_ARENA_MAX": "1",
            "PATH": "",
        },
        timeout=300,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    for said, (what, sentence) in zip(ended.stdout.splitlines(), SENTENCES.items(), strict=True):
        assert re.fullmatch(rf"{EXIT_USER_ERROR} {what}: out of host memory: {sentence}", said), (
            said
        )
