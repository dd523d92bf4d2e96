"""What engines leave in the folder of temporary files."""

from __future__ import annotations

from pathlib import Path


def left_behind(temporary: Path) -> list[str]:
    return sorted(
        path.name for path in temporary.iterdir() if path.name.startswith(("rollcast-", "vllm"))
    )
