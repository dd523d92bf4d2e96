"""Settings of episodes: rollouts of several turns in an environment."""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import Settings


class EpisodeCredit(Settings):
    kind: Literal["episode"] = "episode"
    """The reward of the episode counts for all its sampled tokens."""


class TurnCredit(Settings):
    kind: Literal["turn"] = "turn"
    """A turn is credited with its own reward and the discounted rewards of later turns; the
    episode's counts at its end."""
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor on a reward for each turn that it comes later. 1 = it counts in full."""


Credit = Annotated[EpisodeCredit | TurnCredit, Field(discriminator="kind")]


class Episodes(Settings):
    """Budgets and credit of rollouts whose prompts name an environment.

    Others are not concerned.
    """

    max_turns: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Turns of the model in one episode at most. An episode that needs more counts as truncated."""
    max_seconds: Annotated[float, Field(gt=0, le=604_800)] = 3_600.0
    """Seconds of one episode at most, tool calls included; after them it counts as truncated. Waits
    for a slot of the engine do not count; after as many seconds of them it is given up. An hour: a
    staleness bound of 8 updates of some minutes would discard what takes longer."""
    credit: Credit = EpisodeCredit()
    """Which reward each token is credited with."""
