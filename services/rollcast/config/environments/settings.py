"""Settings that every environment has."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from rollcast.config.base import DATASET_NAME, Settings

Profile = Literal["compute", "folder", "trusted"]
Command = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1, max_length=256)
]
"""A program and its arguments."""


class EnvironmentSettings(Settings):
    """An environment: what answers the model's tool calls, and often what rewards an episode."""

    gives_reward: ClassVar[bool] = True
    """Whether an environment of this kind may reward an episode itself."""
    repeats_last_reward: ClassVar[bool] = False
    """Whether the reward of an episode is that of its last rewarded call. It then counts once, as
    the episode's."""
    masks_sampled_tokens: ClassVar[bool] = False
    """Whether an environment of this kind may take the loss from tokens that the policy sampled."""

    name: Annotated[str, Field(pattern=DATASET_NAME)]
    """Name by which `environment` of a data set or of a row refers to it; also its label in
    metrics."""
    reward: Literal["environment", "verifier"] | None = None
    """Source of an episode's reward: the environment, or the verifier of its data set. None = the
    one of the two that exists; a run file that has both must say."""
    reward_range: tuple[
        Annotated[float, Field(ge=-1e6, le=1e6)], Annotated[float, Field(ge=-1e6, le=1e6)]
    ] = (0.0, 1.0)
    """Lowest and highest reward that the environment gives. They become 0 and 1, and rewards
    between them follow in proportion: training, pass rates and forecasts have rewards from 0 to 1.
    A reward outside the range is no verdict."""
    reset_seconds: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    """Deadline for the environment to be ready for an episode. Two minutes: images are pulled and
    services started before."""
    call_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Deadline of one tool call. A call that exceeds it is answered with a sentence, which the
    model may learn from."""
    restarts: Annotated[int, Field(ge=0, le=10)] = 2
    """How often an episode begins again when its environment fails. After that it is given up with
    its reason, and counts in no group's mean."""

    @property
    def starts_pods(self) -> bool:
        """Whether its episodes run in pods of the generator's cluster."""
        return False

    @field_validator("reward_range")
    @classmethod
    def _check_range(cls, reward_range: tuple[float, float]) -> tuple[float, float]:
        low, high = reward_range
        # A smaller range would make rewards of single calls larger than a rollout's record takes.
        if high - low < 0.001:
            raise ValueError(
                "give the lowest reward, and then a higher one by at least 0.001, such as [-1, 1]"
            )
        return reward_range


class SessionEnvironment(EnvironmentSettings):
    """An environment whose program takes the turns itself, through the generator's endpoint."""

    sampling: Literal["refuse", "run"] = "refuse"
    """Handling of a request whose temperature, top_p or similar differs from the run's. `refuse`:
    it is refused in a sentence. `run`: it is answered with the run's settings, and counted."""
    untrained_requests: Annotated[int, Field(ge=0, le=100_000)] = 64
    """Requests of one episode for the model `MODEL-untrained`: titles, summaries and judges, which
    are answered, one at a time, and never trained. 0 = none. Enough for an agent of 60 turns that
    asks once a turn; without a bound they were a way round budgets."""
    parallel_requests: Annotated[int, Field(ge=1, le=1_024)] = 1
    """Requests that sample side by side although they state no max_tokens, or more than is left:
    each may use this part of the remaining budget. 1 = each may use all of it, and the next one
    waits. More for agents with sub-agents."""
    reset_seconds: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    """Deadline for a program's first request. Two minutes: an import may take one on a busy
    machine."""
    call_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """How long a program may take between an answer and its next request or its end, before it
    counts as failed: the longest call of its tools, and more."""

    @property
    def is_started_here(self) -> bool:
        """The generator starts the program; else it runs elsewhere and asks for its task."""
        raise NotImplementedError


class ProgramEnvironment(SessionEnvironment):
    """An environment whose turns are taken by a program that the generator may start."""

    command: Command | None = None
    model_exit_codes: tuple[Annotated[int, Field(ge=1, le=125)], ...] = ()
    """Exit codes by which the program says that the model's mistake ended it, such as a call of a
    tool that is not there. The episode is then trained: with the reward that was posted before,
    else with 0, or with the verifier's verdict. None by default: an exit code other than 0 is a
    failed program, whose episode is left out."""
