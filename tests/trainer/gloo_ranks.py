"""Several processes over gloo, as under torchrun."""

from __future__ import annotations

import os
import subprocess
import sys

from torch.distributed import TCPStore  # type: ignore[attr-defined]


def run_ranks(module: str, *arguments: object, world_size: int = 2, timeout: float = 120) -> None:
    """Run `python -m module arguments` as each of the ranks; asserts that all end well."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {
        **os.environ,
        "PYTHONPATH": ":".join(sys.path),
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # as under torchrun, whose agent holds the store
    }
    command = [sys.executable, "-m", module, *map(str, arguments)]
    processes = [
        subprocess.Popen(command, env={**common, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(world_size)
    ]
    try:
        errors = [process.communicate(timeout=timeout)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * world_size, "\n".join(errors)
