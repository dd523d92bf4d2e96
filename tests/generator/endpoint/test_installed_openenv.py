"""Harness sessions of the openenv that is installed in an environment of its own: its import takes
minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.rollouts.records import EpisodeEnd
from rollcast.telemetry import episode_metrics
from testkit.generator.episode_tasks import WORLD
from testkit.openenv_sessions import CAPTURED, installed_openenv
from tests.generator.endpoint import test_openenv_sessions
from tests.generator.endpoint.openenv_rollouts import played, sampled_without_loss, served

pytestmark = test_openenv_sessions.pytestmark
test_reward_branches_and_masks_are_the_sessions = (
    test_openenv_sessions.test_reward_branches_and_masks_are_the_sessions
)


@pytest.fixture
def interpreter() -> Path:
    return installed_openenv()


async def test_an_agent_that_openenvs_own_proxy_records(tmp_path: Path) -> None:
    async with served(installed_openenv(), tmp_path, CAPTURED) as endpoint:
        sampler, rollout = await played(endpoint, "")
        assert rollout.episode is not None
        assert rollout.episode.end is not EpisodeEnd.FAILED, rollout.episode.reason
        assert [turn.sequence for turn in rollout.episode.turns] == [0, 0, 0], (
            "a title is not the agent's work"
        )
        assert not sampled_without_loss(rollout)
        assert sampler.verdict is not None
        assert sampler.verdict.reward == 1.0
        assert endpoint.count(episode_metrics.ENDPOINT_DISAGREEMENTS, environment=WORLD) == 0
