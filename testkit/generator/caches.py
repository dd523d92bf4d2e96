"""Caches that an engine's first start on a machine leaves for later ones: kernels of its warm-up,
facts about models."""

from __future__ import annotations

import getpass
import tempfile
from pathlib import Path

COMPILED = Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
"""Torch's own choice, which would follow TMPDIR: to compile for the warm-up again takes minutes on
a busy machine."""
OF_VLLM = Path.home() / ".cache" / "vllm"


def share_caches(home: Path) -> None:
    """Give a new home folder the caches of this machine."""
    for name, folder in {"inductor": COMPILED, "vllm": OF_VLLM}.items():
        folder.mkdir(parents=True, exist_ok=True)
        (home / ".cache").mkdir(parents=True, exist_ok=True)
        (home / ".cache" / name).symlink_to(folder)
