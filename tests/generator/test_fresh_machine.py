"""On a machine without any cache, what vLLM compiles is compiled before the generator announces
itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.rollouts.records import LengthBudget
from testkit.tiny_model import make_tiny_model
from tests.generator.conftest import Versions, make_task, random_prompt, sample_all, small_run

pytestmark = [pytest.mark.engine, pytest.mark.asyncio]

TOLERANCE = 1e-4


def compiled(folder: Path) -> set[Path]:
    return set(folder.rglob("*.so"))


async def test_the_first_rollouts_compile_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "inductor"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    make_tiny_model(tmp_path / "model")
    versions = await Versions.start(small_run(tmp_path), tmp_path, is_compiled=True)
    try:
        before = compiled(cache)
        assert before
        await versions.apply(0)
        for sequence, rollouts in enumerate((1, 2, 7)):
            task = make_task(
                sequence, random_prompt(sequence), LengthBudget(max_tokens=8), rollouts=rollouts
            )
            for rollout in await sample_all(versions, task, [None] * rollouts, []):
                assert versions.largest_gap(rollout, task) < TOLERANCE
        assert compiled(cache) == before
    finally:
        versions.engine.shutdown()
