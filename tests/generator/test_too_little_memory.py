"""An update or a step that the engine has no memory for is reported with the setting that bounds
it.
"""

from __future__ import annotations

import asyncio
import re

import pytest

from rollcast.config.services import Generator
from rollcast.generator.vllm.engine_failure import no_room_at_work
from rollcast.generator.vllm.engine_request import EngineRequest
from rollcast.rollouts.records import Sampling
from rollcast.weights.receiver.reception import EngineStuckError
from rollcast.wire.version import PolicyVersion
from tests.generator.conftest import Versions, random_prompt

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]


async def test_what_the_engine_has_no_memory_for_is_told_with_the_setting(
    tight_versions: Versions,
) -> None:
    """Ends the engine: another test that needs one of its kind starts it again."""
    engine = tight_versions.engine
    generator = tight_versions.config.generator
    assert engine.no_room is None
    with pytest.raises(Exception, match="can't allocate memory") as refused:
        await engine.update(PolicyVersion(1, 9_000), "load_too_much")
    stuck = EngineStuckError(f"applying failed: {refused.value}")
    said = no_room_at_work(generator, stuck, engine.no_room, killed=False)
    assert re.fullmatch(
        r"out of host memory: a version that is applied does not fit \(it asked for \d+ bytes "
        r"more\); give the machine "
        r"more, or lower generator.cpu_kv_cache_gib \(now 1\)",
        str(said),
    )
    await engine._llm.engine_core.resume_scheduler_async()

    await engine.call("step_too_far")
    request = EngineRequest(random_prompt(1), max_tokens=4, sampling=Sampling(), seed=1, salt=str)
    with pytest.raises(Exception, match="EngineCore") as died:  # which says no more than that
        await asyncio.wait_for(engine.sample(request), 60)
    assert engine.failed
    said = no_room_at_work(generator, died.value, engine.no_room, killed=False)
    assert str(said).startswith(
        "out of host memory: a step of the engine does not fit (it asked for "
    )


async def test_what_ended_otherwise_is_not_for_want_of_memory() -> None:
    generator = Generator()
    assert (
        no_room_at_work(generator, RuntimeError("shapes do not agree"), None, killed=False) is None
    )
    killed = no_room_at_work(generator, RuntimeError("the engine is dead"), None, killed=True)
    assert killed is not None
    assert killed.exit_code == 1, "perhaps for what others took"
