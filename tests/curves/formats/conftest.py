"""What the bounded readers of all files are forked of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.forked_programs import ForkedPrograms
from tests.curves.bounded import Bounded


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bounded]:
    folder = tmp_path_factory.mktemp("bounded")
    with ForkedPrograms(folder, ("tests.curves.bounded",)) as programs:
        yield Bounded(programs, folder)
