"""Runs of the demo's task for both questions: healthy ones of several seeds, and ones that are made
to collapse.

    python -m lab.witness.runs --folder FOLDER [--only NAME ..]

Every run is the real system (Redis, one vLLM generator, one trainer) on the cores that this process
may use. A run folder that exists already is kept. Checkpoints are replaced by their weights alone,
`weights/STEP.npz`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import yaml

from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from testkit.system.harness import System, wait_for

RUN_SECONDS = 1_500.0
"""Deadline of one run on half a core."""
WEIGHTS = "weights"
DEAD_STEPS = 10
"""A run is ended after this many steps below `DEAD_REWARD`."""
DEAD_REWARD = 0.02


@dataclass(frozen=True, slots=True)
class Kind:
    """Settings in which a run differs from the demo's."""

    steps: int
    every_steps: int
    """Between two evaluations."""
    num_prompts: int
    """Held-out prompts, of 4 completions each."""
    learning_rate: float
    warmup_steps: int = 0
    seed: int = 0
    loss: dict[str, Any] | None = None
    """None = the demo's, CISPO."""
    max_grad_norm: float = 1.0
    keeps_weights: bool = False


def _healthy(seed: int) -> Kind:
    return Kind(96, 4, 80, 6e-5, warmup_steps=16, seed=seed, keeps_weights=True)


UNCLIPPED = {"kind": "dapo", "clip_low": 0.99, "clip_high": 100.0}
KINDS = {
    "ramp-1e-3": Kind(80, 2, 48, 1e-3, warmup_steps=120),
    "seed-0": _healthy(0),
    "unclipped-ramp-1e-3": Kind(
        80, 2, 48, 1e-3, warmup_steps=160, loss=UNCLIPPED, max_grad_norm=1e6
    ),
    "seed-1": _healthy(1),
    "rate-2e-4": Kind(80, 2, 48, 2e-4, seed=1),
    "seed-2": _healthy(2),
    "ramp-5e-4": Kind(80, 2, 48, 5e-4, warmup_steps=80, seed=2),
    "seed-3": _healthy(3),
    "seed-4": _healthy(4),
    "slow-0": replace(_healthy(6), learning_rate=2e-5),
    "ramp-2e-4": Kind(80, 2, 48, 2e-4, warmup_steps=100, seed=3),
    "rate-4e-4": Kind(80, 2, 48, 4e-4, warmup_steps=8, seed=5),
}
"""The runs, in the order of making."""


def make_settings(name: str, kind: Kind, core: int) -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load(Path("configs/demo.yaml").read_text())
    settings["run"] = name
    settings["seed"] = kind.seed
    settings["model"]["path"] = str(ensure_base_model(BaseModel(), lambda share: None))
    settings["tasks"]["evaluation"] |= {
        "every_steps": kind.every_steps,
        "num_prompts": kind.num_prompts,
    }
    recipe = settings["recipe"]
    recipe["optimizer"] = {
        "learning_rate": kind.learning_rate,
        "warmup_steps": kind.warmup_steps,
        "max_grad_norm": kind.max_grad_norm,
    }
    if kind.loss is not None:
        recipe["loss"] = kind.loss
    settings["budget"] = {"steps": kind.steps}
    settings["generator"]["cpu"] = core
    every = 2 if kind.keeps_weights else 1_000_000
    settings["trainer"] |= {"cpu": core, "checkpoint_every_steps": every, "keep_checkpoints": 1_000}
    del settings["rpc"], settings["redis"], settings["forecaster"]
    return settings


def make_run(folder: Path, name: str, kind: Kind) -> None:
    core = min(os.sched_getaffinity(0))
    with System(folder, make_settings(name, kind, core)) as system:
        system.start_trainer()
        system.start_generator("g0")
        wait_for(lambda: has_ended(system), RUN_SECONDS, f"the end of {name}", every=0.5)
        checkpoints = system.run_folder / "checkpoints"
        if kind.keeps_weights:
            keep_weights(checkpoints, system.run_folder / WEIGHTS)
        shutil.rmtree(checkpoints, ignore_errors=True)


def has_ended(system: System) -> bool:
    """Whether the trainer has ended.

    A dead run is ended: its filter would wait for a group with a signal.
    """
    code = system.processes["trainer"].poll()
    if code is not None:
        if code != 0:
            raise RuntimeError(system.log("trainer")[-3000:])
        return True
    with suppress(httpx.HTTPError, OSError, ValueError):
        system.metrics("trainer")  # the trainer waits until its last metrics were read
    newest = [step["reward_mean"] for step in system.steps[-DEAD_STEPS:]]
    if len(newest) < DEAD_STEPS or max(newest) >= DEAD_REWARD:
        return False
    system.terminate("trainer")
    return True


def keep_weights(checkpoints: Path, folder: Path) -> None:
    """Write each checkpoint's weights as STEP.npz."""
    import torch
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    folder.mkdir(exist_ok=True)
    for checkpoint in checkpoints.iterdir():
        reader = FileSystemReader(checkpoint)
        entries = reader.read_metadata().state_dict_metadata
        tensors = {
            name: torch.empty(tuple(entry.size))
            for name, entry in entries.items()
            if name.startswith("weights.") and isinstance(entry, TensorStorageMetadata)
        }
        load(tensors, storage_reader=reader, no_dist=True)
        step = checkpoint.name.split(".")[-1]
        arrays = {name.removeprefix("weights."): tensor.numpy() for name, tensor in tensors.items()}
        np.savez(folder / f"{step}.npz", allow_pickle=False, **arrays)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    arguments = parser.parse_args()
    for name in arguments.only:
        folder = arguments.folder / name
        if folder.exists():
            continue
        begin = time.monotonic()
        make_run(folder, name, KINDS[name])
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
