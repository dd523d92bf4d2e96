"""Episodes that are lost after an answered turn are said once they are many, with the setting that
trains them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.rollouts.records import Episode, EpisodeEnd, RolloutGroup, Turn
from rollcast.runfolder.episode_losses import read_losses
from rollcast.runfolder.files import EPISODE_LOSSES
from rollcast.trainer.control.lost_episodes import LostEpisodes, own_exit_code
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_answer_group, make_graded_rollout, make_task

TURN = Turn(0, 0, 4)
CRASH = "environment agent: ended with exit code 1: ModelBehaviorError: Tool final_result not found"


def group(*episodes: Episode) -> RolloutGroup:
    version = PolicyVersion(1, 0)
    rollouts = [make_graded_rollout(index, 0.0, version) for index in range(len(episodes))]
    for rollout, episode in zip(rollouts, episodes, strict=True):
        rollout.episode = episode
    return make_answer_group(
        make_task(1, num_rollouts=len(episodes)), rollouts, first_version=version
    )


def answered(name: str = "agent") -> Episode:
    return Episode(name, turns=(TURN,), end=EpisodeEnd.ANSWERED)


def lost(reason: str = CRASH, turns: tuple[Turn, ...] = (TURN,)) -> Episode:
    return Episode("agent", turns=turns, end=EpisodeEnd.FAILED, reason=reason)


def test_many_lost_episodes_are_said_with_the_code_and_the_setting(tmp_path: Path) -> None:
    episodes = LostEpisodes(tmp_path)
    episodes.note(group(*[answered()] * 90, *[answered("other")] * 3))
    episodes.note(group(lost(), lost()))
    assert read_losses(tmp_path) == [], "two may be chance"
    episodes.note(group(lost("environment agent: ended with exit code 137: killed"), lost()))
    (told,) = read_losses(tmp_path)
    assert (told.environment, told.num_episodes, told.num_lost, told.exit_code) == (
        "agent",
        93,
        3,
        1,
    )
    sentence = told.sentence()
    assert sentence.startswith(
        "environment agent loses 3 of 93 episodes (3.2%) after an answered turn, most often: "
    )
    assert "Tool final_result not found" in sentence
    assert sentence.endswith("train them by model_exit_codes: [1] of environment agent")
    episodes.note(group(lost()))
    assert read_losses(tmp_path)[0].num_lost == 3, "said again when their number has doubled"
    episodes.note(group(lost(), lost()))
    assert read_losses(tmp_path)[0].num_lost == 6


@pytest.mark.parametrize("reason", ["environment agent: sent no request for 60 seconds", CRASH])
def test_one_in_a_hundred_and_those_without_a_turn_are_not_said(
    reason: str, tmp_path: Path
) -> None:
    episodes = LostEpisodes(tmp_path)
    episodes.note(group(*[answered()] * 400, *[lost(reason)] * 4, *[lost(reason, ())] * 100))
    assert not (tmp_path / EPISODE_LOSSES).exists()


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (CRASH, 1),
        ("environment a: ended with exit code 3", 3),
        ("environment a: ended with exit code 137: it printed nothing", None),
        ("environment a: ended with exit code 127: agent cannot be started", None),
        (
            "environment a: ended with exit code 1; it was refused: max_tokens is too large: boom",
            None,
        ),
        ("environment a: sent no request for 60 seconds", None),
    ],
)
def test_only_a_programs_own_code_is_offered(reason: str, code: int | None) -> None:
    assert own_exit_code(reason) == code


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'[{"environment": "a"}]', b"[" * 100_000])
def test_a_damaged_file_says_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / EPISODE_LOSSES).write_bytes(content)
    assert read_losses(tmp_path) == []
