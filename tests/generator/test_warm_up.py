"""A fresh machine: what vLLM compiles is compiled before the generator announces itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from rollcast.rollouts.records import LengthBudget
from tests.generator.conftest import Versions, make_task, random_prompt, sample_all

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def compiler_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Empty when the engine starts; asked for before `versions`."""
    return tmp_path_factory.mktemp("inductor")


@pytest.fixture(scope="module", autouse=True)
def fresh_machine(compiler_cache: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(compiler_cache))
        yield


def compiled(folder: Path) -> set[Path]:
    return set(folder.rglob("*.so"))


async def test_the_first_rollouts_compile_nothing(compiler_cache: Path, versions: Versions) -> None:
    before = compiled(compiler_cache)
    assert before
    await versions.apply(1)
    for sequence, rollouts in enumerate((1, 2, 7)):
        task = make_task(sequence, random_prompt(sequence), LengthBudget(max_tokens=8), rollouts=rollouts)
        for rollout in await sample_all(versions, task, [None] * rollouts, []):
            assert versions.largest_gap(rollout, task) < 1e-4
    assert compiled(compiler_cache) == before
