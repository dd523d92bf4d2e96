"""Several processes over gloo, as under torchrun, forked of one that has imported torch."""

from __future__ import annotations

import time
from pathlib import Path

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from testkit.forked_programs import ForkedPrograms


def run_ranks(
    trainers: ForkedPrograms,
    folder: Path,
    module: str,
    *arguments: object,
    world_size: int = 2,
    seconds: float = 120,
) -> None:
    """Run `python -m module arguments` as each of the ranks; asserts that all end well.

    Their logs are in `folder`.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # as under torchrun, whose agent holds the store
    }
    logs = [folder / f"rank-{rank}.log" for rank in range(world_size)]
    processes = [
        trainers.start(
            module, [str(argument) for argument in arguments], log, {**common, "RANK": str(rank)}
        )
        for rank, log in enumerate(logs)
    ]
    deadline = time.monotonic() + seconds
    try:
        codes = [process.wait(max(0.0, deadline - time.monotonic())) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0] * world_size, "\n".join(log.read_text() for log in logs)
