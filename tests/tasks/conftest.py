"""What several files of one process share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from rollcast.config.tasks import Grading
from rollcast.tasks.sandbox.client import Sandbox


@pytest.fixture(scope="session")
def code_sandbox() -> Iterator[Sandbox]:
    """For programs that end by themselves; its tests neither stop its processes nor change its
    settings.
    """
    with closing(Sandbox(Grading(deadline_seconds=120.0, seconds_per_test=60.0))) as sandbox:
        yield sandbox
