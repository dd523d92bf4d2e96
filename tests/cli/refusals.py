"""What a command says that refuses: as what it read each file, why it refuses, and nothing else."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


def check_refused(
    result: subprocess.CompletedProcess[str], sentence: str, read: Sequence[Path]
) -> None:
    """`read`: the files, columns compute and pass_rate, that were read before the mistake was seen,
    in their order.
    """
    *recognised, error = result.stderr.splitlines()
    assert recognised == [f"{path}: CSV: pass_rate over compute (device-hours)" for path in read]
    assert error.startswith("error: ")
    assert sentence in error
    assert (result.returncode, result.stdout) == (2, "")
