"""Classes of the user's own are looked at without running them: missing ones, and episodes that
nothing rewards.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.config.datasets import JsonlDataset
from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.config.errors import UserError
from rollcast.config.tasks import Tasks
from rollcast.local.checks.environment_classes import check_classes

RAISES = "raise SystemExit('the file was run')\n"
WITH_REWARD = "class World:\n    def get_reward(self):\n        return 1.0\n"
WITHOUT = "class World:\n    def move(self):\n        pass\n"


def tasks_of(folder: Path, text: str, *, name: str = "World", verifier: str | None = None) -> Tasks:
    (folder / "world.py").write_text(RAISES + text)
    return Tasks(
        dataset=JsonlDataset(
            name="mine", path=folder / "rows.jsonl", environment="world", verifier=verifier
        ),
        environments=(ClassEnvironment(name="world", code=f"{folder}/world.py:{name}"),),
    )


@pytest.mark.parametrize(
    "text",
    [
        WITH_REWARD,
        "class World:\n    async def get_reward(self):\n        return 1.0\n",
        "class Base:\n    get_reward = len\nclass World(Base):\n    pass\n",
        "import gym\nclass World(gym.Env):\n    pass\n",
        "@rewarded\nclass World:\n    pass\n",
        "class World(World):\n    def get_reward(self): ...\n",
        "from gym import World\n",
        "try:\n    class World:\n        pass\nexcept TypeError:\n    World = None\n",
    ],
    ids=[
        "method",
        "async",
        "base",
        "base elsewhere",
        "decorated",
        "its own base",
        "imported",
        "in a block",
    ],
)
def test_a_class_that_may_reward_is_taken_and_not_run(tmp_path: Path, text: str) -> None:
    check_classes(tasks_of(tmp_path, text))


def test_episodes_that_nothing_rewards_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError,
        match=r"code = .*: the class has no get_reward, and data set 'mine' leaves the reward",
    ):
        check_classes(tasks_of(tmp_path, WITHOUT))


def test_a_verifier_that_counts_is_enough(tmp_path: Path) -> None:
    tasks = tasks_of(tmp_path, WITHOUT, verifier="math")
    rewarded = tasks.environments[0].model_copy(update={"reward": "verifier"})
    check_classes(tasks.model_copy(update={"environments": (rewarded,)}))


def test_a_missing_file_and_class_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"has no class 'Word' \(it has World\); name one, or add it"
    ):
        check_classes(tasks_of(tmp_path, WITH_REWARD, name="Word"))
    with pytest.raises(UserError, match="the file is no Python"):
        check_classes(tasks_of(tmp_path, "class World("))
    tasks = tasks_of(tmp_path, WITH_REWARD)
    (tmp_path / "world.py").unlink()
    with pytest.raises(UserError, match=r"world\.py"):
        check_classes(tasks)
