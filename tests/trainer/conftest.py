from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.forked_programs import TRAINER, ForkedPrograms
from tests.trainer.tiny_models import write_model


@pytest.fixture(scope="session", params=["untied", "tied"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp(request.param), tied=request.param == "tied")


@pytest.fixture(scope="session")
def untied_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("untied"))


@pytest.fixture(scope="session")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedPrograms]:
    """What trainers and their ranks are forked of, once a test process has need of one."""
    with ForkedPrograms(tmp_path_factory.mktemp("forked"), TRAINER) as trainers:
        yield trainers
