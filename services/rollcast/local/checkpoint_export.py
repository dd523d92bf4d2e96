"""The model of a kept checkpoint: finds the checkpoint, and starts the process that writes it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig
from rollcast.curves.best_checkpoint import KeptLevels
from rollcast.runfolder.files import RUN_FILE, checkpoint_place
from rollcast.runfolder.kept_checkpoints import kept_in_words, kept_versions


def export_checkpoint(config: RunConfig, step: int | None, folder: Path) -> int:
    """Make `folder` of the checkpoint of `step`, None = of the best one; returns its step.

    Raises UserError.
    """
    location = checkpoint_place(config.run_folder, config.trainer.checkpoints)
    if step is None:
        levels = KeptLevels.of_folder(config.run_folder).levels
        step = levels.steps[levels.best]
    version_folders = kept_versions(location)
    versions = [version for version in version_folders if version[1] == step]
    if not versions:
        steps = {kept_step for _, kept_step in version_folders}
        raise UserError(
            f"--step {step}: {location} holds no checkpoint of that step; {kept_in_words(steps)}"
        )
    checkpoint = version_folders[max(versions)]
    with tempfile.TemporaryDirectory(prefix="rollcast-export-") as scratch:
        run_file = Path(scratch) / RUN_FILE
        write_resolved(config, run_file)
        files = ("--config", str(run_file), "--checkpoint", str(checkpoint))
        # Torch's memory goes away with the process, and the command line does not import it.
        process = subprocess.run(  # noqa: S603  # our own module
            [
                *(sys.executable, "-m", "rollcast.trainer.export_checkpoint"),
                *(*files, "--folder", str(folder.absolute())),
            ],
            env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    if process.returncode != 0:
        reason = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise UserError(
            f"the checkpoint of step {step} cannot be exported: {reason.removeprefix('error: ')}"
        )
    return step
