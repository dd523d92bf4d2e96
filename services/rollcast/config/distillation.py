"""Settings of on-policy distillation: who the teacher is, and what its judgement
of a token weighs.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rollcast.config.base import WEB_ADDRESS, FolderOrName, Settings


class FolderTeacher(Settings):
    kind: Literal["folder"] = "folder"
    """A model that the trainer's ranks hold: frozen, in `model.dtype`, sharded like the policy. Its
    forward passes take time of the trainer's devices, which are counted as they are."""
    path: Annotated[FolderOrName, Field(min_length=1)]
    """Folder of a Hugging Face causal LM, or its name on the hub, with the tokenizer of
    `model.path`."""


class EndpointTeacher(Settings):
    kind: Literal["endpoint"] = "endpoint"
    """A vLLM server (`vllm serve`). It scores a group as soon as it comes back, while other groups
    are sampled."""
    url: Annotated[str, Field(pattern=WEB_ADDRESS)]
    """Address of the teacher, which ends in /v1. The model behind it must have the tokenizer of
    `model.path` and take at least model.max_length + 1 tokens."""
    model: Annotated[str, Field(min_length=1)]
    """The model's name at the endpoint."""
    devices: Annotated[int, Field(ge=0)]
    """Devices that the server holds for this run. Their hours are part of the run's compute, as
    those of generators are, from the trainer's start to its end. 0 = not counted: the server is
    there anyway. Without a default, because a curve is only as honest as its compute."""
    token_variable: str | None = None
    """Environment variable of the trainer that holds the bearer token to present. None = none is
    presented."""
    requests: Annotated[int, Field(ge=1, le=1_024)] = 32
    """Rollouts that it is asked about concurrently. vLLM batches them; 32 fill it without a queue
    of its own."""
    deadline_seconds: Annotated[float, Field(gt=0, le=3_600)] = 300.0
    """How long a group may wait for it, queue and all tries included; rollouts without an answer
    then are counted and not trained on. Five minutes: a server that is restarted is back by then.
    After eight groups in a row without any answer the run ends."""

    tries: ClassVar[int] = 1_000
    """The deadline ends them."""
    failures: ClassVar[int] = 1_000_000
    """The endpoint is never left alone: without it nothing can be trained."""
    pause_seconds: ClassVar[float] = 1.0


Teacher = Annotated[FolderTeacher | EndpointTeacher, Field(discriminator="kind")]


class Distillation(Settings):
    """On-policy distillation: every sampled token gets the advantage -coefficient x (log pi_gen -
    log pi_teacher).

    The formula and its source are in `rollcast.recipe.distillation`.
    """

    teacher: Teacher
    """The model to learn from. Cross-tokenizer distillation is refused: the log-probs of other
    tokens say nothing about these."""
    coefficient: Annotated[float, Field(gt=0)] = 1.0
    """Advantage for each nat by which the generator's log-prob of a token exceeds the teacher's. 1
    as in the source; next to a reward it is the weight of the teacher, the verifier's advantages
    being about 1 in size."""
    with_reward: bool = False
    """Add it to the verifier's advantage. False: the teacher alone decides, so neither rewards nor
    missing verdicts nor the zero-variance filter leave a rollout out. With true the filter still
    drops groups with equal rewards, though the teacher could say something about them: set
    `zero_variance_filter` to false to learn from these too."""

    @property
    def devices(self) -> int:
        """Devices of the teacher that the run does not hold anyway."""
        return self.teacher.devices if isinstance(self.teacher, EndpointTeacher) else 0
