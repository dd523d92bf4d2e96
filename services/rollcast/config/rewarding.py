"""Who rewards the episodes of a data set: the environment, or the verifier.

    environment's `reward`   environment   verifier   left out
    it can reward            environment   verifier   environment, if the data set has no verifier
                                                      of its own; else refused
    it cannot (tools)        refused       verifier   verifier

A data set has a verifier of its own if it names one, or a mapping that knows one. Plain rows
without one are compared with their answer (`exact`), if the verifier rewards.
"""

from rollcast.config.datasets import RowsDataset
from rollcast.config.environments.settings import EnvironmentSettings


def has_custom_verifier(dataset: RowsDataset) -> bool:
    return dataset.verifier is not None or dataset.mapping != "plain"


def find_reward_conflict(environment: EnvironmentSettings, dataset: RowsDataset) -> str | None:
    """Why it is not known who rewards, as the rest of a sentence about `reward` of the environment;
    None if it is.
    """
    if environment.reward == "environment" and not environment.gives_reward:
        return (
            f"environment {environment.name!r} is of a kind that has no reward of its own; remove "
            f"it, and the verifier of data set {dataset.name!r} rewards"
        )
    if environment.reward is None and environment.gives_reward and has_custom_verifier(dataset):
        verifier = dataset.verifier or f"of mapping {dataset.mapping}"
        return (
            f"both the environment and the verifier {verifier} of data set {dataset.name!r} may "
            "reward its episodes; set "
            f"reward of environment {environment.name!r} to environment or verifier"
        )
    return None


def environment_rewards(environment: EnvironmentSettings, dataset: RowsDataset) -> bool:
    """Whether the environment rewards, and not the verifier.

    `find_reward_conflict` says None of the two.
    """
    if environment.reward is None:
        return environment.gives_reward and not has_custom_verifier(dataset)
    return environment.reward == "environment"
