"""The episodes of tests/generator/test_episodes.py with the engine of another architecture: a
Llama.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from testkit.tiny_model import make_architecture
from tests.generator import test_episodes
from tests.generator.conftest import TIGHT, Versions, small_run

pytestmark = test_episodes.pytestmark
globals().update(
    {name: test for name, test in vars(test_episodes).items() if name.startswith("test_")}
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Versions]:
    folder = tmp_path_factory.mktemp("llama")
    make_architecture(folder / "model", "llama", max_length=512)
    arguments: dict[str, Any] = {**TIGHT}
    versions = await Versions.start(small_run(folder), folder, **arguments)
    yield versions
    versions.engine.shutdown()


@pytest_asyncio.fixture(loop_scope="session")
async def versions(engine: Versions) -> Versions:
    await engine.begin()
    return engine
