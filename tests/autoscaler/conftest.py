from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rollcast.connections.port_files import publish_port
from tests.autoscaler.pages import RUN, Fleet, Page


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Two generators of 400 tokens a second, a trainer that consumes 1,600."""
    with ExitStack() as stack:
        trainer, *generators = (stack.enter_context(Page()) for _ in range(3))
        publish_port(tmp_path / RUN, "trainer", trainer.port)
        for number, page in enumerate(generators):
            publish_port(tmp_path / RUN, f"g{number}", page.port)
        yield stack.enter_context(Fleet(trainer, generators, need=1_600.0, each=400.0, slots=32))
