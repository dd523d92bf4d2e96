"""What the processes of a run on one card get in the proof, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from testkit.gpu.live_run import ONE_CARD
from testkit.gpu.one_card.sitecustomize import stagers_are_used_up
from tests.only_these import ROOT

SAVES = """
import os, sys, torch
torch.__version__ = sys.argv[1]
from torch.distributed.checkpoint import staging
made = []
class UsedUpAfterOnce:
    def __init__(self, options):
        made.append(self)
        self.is_closed = False
    def stage(self, state):
        assert not self.is_closed, "the stager is closed"
        self.is_closed = True
staging.DefaultStager = UsedUpAfterOnce
from rollcast.trainer.learner import saving
saving.state = lambda learner: {}
saving.check_finite = lambda *_: None
saving.controller_text = lambda learner, controller: ""
saving.async_save = lambda tensors, async_stager, **_: async_stager.stage(tensors)
saving.cast = lambda kind, upload: type("Upload", (), {"add_done_callback": lambda self, call: None})()
saving.dist.new_group = lambda **_: None
ranks = type("Ranks", (), {"device": torch.device("cpu"), "rank": 0})
storage = type("Storage", (), {"writer": lambda self, name: None, "begin": lambda self, name, size: None})()
saver = saving.CheckpointSaver(type("Learner", (), {"ranks": ranks}), storage, keep=1)
saver._at_rank_0 = lambda action: action()
saver.reserve()
for step in range(2):
    saver.begin(step, None)
print(len(made), os.environ["NCCL_HOSTID"], os.getpid())
"""  # noqa: E501
"""Every save of a run, with a stager as torch 2.11 has it."""


def test_with_an_older_torch_each_save_has_a_stager_of_its_own() -> None:
    path = os.pathsep.join([str(ONE_CARD), str(ROOT / "services"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", SAVES, "2.11.0+cu130"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    made, host, pid = done.stdout.split()
    assert made == "3"  # the one that `reserve` used up, and one for each save
    assert host == f"process-{pid}", "NCCL takes each process for a host of its own"


@pytest.mark.parametrize(
    ("version", "used_up"),
    [("2.11.0+cu130", True), ("2.12.1", True), ("2.13.0+cpu", False), ("3.0.0", False)],
)
def test_the_version_decides(version: str, used_up: bool) -> None:
    assert stagers_are_used_up(version) is used_up
