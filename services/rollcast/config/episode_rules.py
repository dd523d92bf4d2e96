"""The rules across settings of episodes: environments, who rewards, credit.

`rollcast.config.rules` applies them.
"""

from collections.abc import Iterable, Iterator

from rollcast.config.datasets import Dataset, Mixture, RowsDataset
from rollcast.config.episodes import TurnCredit
from rollcast.config.recipe import Recipe
from rollcast.config.rewarding import find_reward_conflict
from rollcast.config.sentences import Contradiction
from rollcast.config.tasks import Tasks


def episodes_fit(
    tasks: Tasks, recipe: Recipe, datasets: Iterable[tuple[str, Dataset | Mixture]]
) -> Iterator[Contradiction]:
    """`datasets`: all of `tasks`, each with the setting that holds it."""
    names = [environment.name for environment in tasks.environments]
    remedy = (
        f"it has {', '.join(names)}; correct the name"
        if names
        else "it is empty; add an environment of that name"
    )
    for field, dataset in datasets:
        if isinstance(dataset, RowsDataset) and dataset.environment not in (None, *names):
            yield (
                f"{field}.environment",
                f"is not one of tasks.environments: {remedy}",
                "tasks.environments",
            )
    if tasks.environments:
        yield from _one_part_rewards(tasks, datasets)
        if tasks.prompt_format.layout != "auto":
            yield (
                "tasks.prompt_format.layout",
                "episodes in tasks.environments are chats in the model's own chat template; set it "
                "to auto",
                "tasks.environments",
            )
    if isinstance(recipe.episodes.credit, TurnCredit):
        yield from _turns_can_be_credited(recipe)


def _one_part_rewards(
    tasks: Tasks, datasets: Iterable[tuple[str, Dataset | Mixture]]
) -> Iterator[Contradiction]:
    for number, environment in enumerate(tasks.environments):
        setting = f"tasks.environments.{number}.reward"
        for field, dataset in datasets:
            if not isinstance(dataset, RowsDataset) or dataset.environment != environment.name:
                continue
            if sentence := find_reward_conflict(environment, dataset):
                grader_setting = "mapping" if dataset.verifier is None else "verifier"
                yield setting, sentence, f"{field}.{grader_setting}"
                break


def _turns_can_be_credited(recipe: Recipe) -> Iterator[Contradiction]:
    credit = "recipe.episodes.credit"
    remedy = "remove it, or set recipe.episodes.credit: {kind: episode}"
    if recipe.advantage is not None:
        yield (
            "recipe.advantage.function",
            f"it gives one advantage for each rollout, and {credit} one for each turn; {remedy}",
            credit,
        )
    if not recipe.uses_reward:
        yield (
            f"{credit}.kind",
            "it credits turns with rewards, and the teacher alone decides; remove it or set "
            "recipe.distillation.with_reward to true",
            "recipe.distillation.with_reward",
        )
