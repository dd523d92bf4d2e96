"""The demo's language model: a tiny Qwen3 of 0.6 M parameters, trained from scratch on imperfect
worked additions.

Training takes about a minute on one core and is done once: the folder is cached under a key made of
the settings. Every step of a training trace is wrong with probability `noise`, so the model learns
the form of the answer and how to add, but samples wrong steps too: what RL has to cure.

    ensure_base_model -> cached? -> its folder
                      -> a process trains it, printing its progress -> renamed into place
"""

import dataclasses
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from rollcast.config.errors import UserError

TRAINING_DEADLINE_SECONDS = 1_800.0
Progress = Callable[[float], None]
"""Called with the share of the work that is done, 0 to 1."""
PLACEHOLDER = "arithmetic-base"
"""Placeholder of the demo's model in a run file until it is trained."""


@dataclass(frozen=True, slots=True)
class BaseModel:
    """Settings of the training from scratch; the cache key is made of all of them."""

    max_digits: int = 4
    noise: float = 0.35
    """Probability that a worked step of a training trace is wrong."""
    steps: int = 600
    batch: int = 32
    learning_rate: float = 1.5e-3
    """The peak of the learning rate."""
    seed: int = 0
    measured_prompts: int = 256
    """Prompts by which the pass rate at the start is measured."""
    recipe: int = 1
    """Raised whenever this file's training changes, so that old caches are not used."""

    @property
    def key(self) -> str:
        settings = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return "arithmetic-" + hashlib.sha256(settings.encode()).hexdigest()[:12]


def cache_folder() -> Path:
    """ROLLCAST_CACHE, or ~/.cache/rollcast."""
    return Path(os.environ.get("ROLLCAST_CACHE") or Path.home() / ".cache" / "rollcast")


def ensure_base_model(settings: BaseModel, progress: Progress) -> Path:
    """The folder of the trained model (Hugging Face format); trains it if it is not cached.

    Raises UserError if the cache cannot be written or training failed.
    """
    cache = cache_folder()
    folder = cache / settings.key
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f".{settings.key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a second demo waits for the first one's model
            if not folder.exists():
                with tempfile.TemporaryDirectory(
                    prefix=f".{settings.key}.", dir=cache
                ) as temporary:
                    model_folder = Path(temporary) / "model"
                    _train_in_process(settings, model_folder, progress)
                    model_folder.rename(folder)
    except OSError as error:
        raise UserError(
            f"ROLLCAST_CACHE = {cache}: the base model cannot be stored there "
            f"({error.strerror or error}); free space or name another folder"
        ) from error
    return folder


def _train_in_process(settings: BaseModel, folder: Path, progress: Progress) -> None:
    """Torch's memory and threads go away with the process."""
    arguments = (json.dumps(dataclasses.asdict(settings)), str(folder))
    command = [sys.executable, "-m", "rollcast.local.demo.training", *arguments]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        with subprocess.Popen(  # noqa: S603  # our own module
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            errors="replace",
            env=environment,
        ) as process:
            deadline = Timer(TRAINING_DEADLINE_SECONDS, process.kill)
            deadline.start()
            try:
                for line in process.stdout or ():
                    with suppress(
                        ValueError
                    ):  # a line that is no number is a library's word to the user
                        progress(float(line))
                process.wait()
            finally:
                deadline.cancel()
                process.kill()
        errors.seek(0)
        reason = (errors.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1]
    if process.returncode != 0:
        raise UserError(
            f"training of the demo's base model failed ({reason}); free memory or disk space and "
            "run again"
        )
