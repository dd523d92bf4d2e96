"""Loaded by every Python process whose PYTHONPATH names this folder.

NCCL refuses two processes of one host on one GPU. It distinguishes hosts by NCCL_HOSTID, so each
process here is a host of its own, and they meet over TCP on the loopback, as pods do.

Before torch 2.13, which this repository pins, a checkpoint's stager closes itself after its first
use, and `CheckpointSaver.reserve` has used it: every checkpoint fails there. With an older torch
each save gets a stager of its own, which costs the time of new pinned memory.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

SAVING = "rollcast.trainer.learner.saving"
STAGERS_LAST_SINCE = (2, 13)
"""The first torch whose stager may be used again."""

os.environ["NCCL_HOSTID"] = f"process-{os.getpid()}"


def stagers_are_used_up(torch_version: str) -> bool:
    """Whether this torch closes a stager after one use."""
    major, minor = torch_version.split(".")[:2]
    return (int(major), int(minor)) < STAGERS_LAST_SINCE


def renew_stager(saving: ModuleType) -> None:
    """Let `CheckpointSaver.begin` make a new stager first."""
    saver: Any = saving.CheckpointSaver
    begin = saver.begin

    def begin_with_a_new_stager(self: Any, *arguments: Any, **named: Any) -> Any:
        on_gpu = self._learner.ranks.device.type == "cuda"
        self._stager = saving.DefaultStager(saving.StagingOptions(on_gpu, False, False, on_gpu))
        return begin(self, *arguments, **named)

    saver.begin = begin_with_a_new_stager


class AfterImport(MetaPathFinder):
    """Changes the module that saves checkpoints when it has been imported, and no other."""

    def find_spec(
        self, name: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find it as without this finder, with a loader that changes it afterwards."""
        if name != SAVING:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            if stagers_are_used_up(module.torch.__version__):
                renew_stager(module)

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, AfterImport())
