"""Settings of the flight recorder: which steps of the trainer are kept to be replayed."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rollcast.config.base import Settings

Condition = Literal["non_finite", "gap", "few_effective_samples", "broken", "failed"]
STEP_BOUNDS = {"gap": 0.05, "few_effective_samples": 0.5}
"""Bounds of one step, and of the alerts RollcastLogprobGap and RollcastFewEffectiveSamples.

gap: nats. Rounding and k steps of learning make less; a head in lower precision or a wrong version
makes more. few_effective_samples: share of a batch's tokens. Below it a gradient weighted by the
ratios is as noisy as that of a batch half as large. Ratios whose logarithms spread by 0.1 nats
leave 0.99; rare tokens that the generators hold for impossible take the rest.
"""


class StepRecording(Settings):
    """The flight recorder: steps that `rollcast replay` computes again. Off by default, at no
    cost.
    """

    every_steps: Annotated[int, Field(ge=1)] | None = None
    """Keep every step whose number this divides. None = none for this reason."""
    on: tuple[Condition, ...] = ()
    """Keep the last steps when the trainer sees one of these: `non_finite`, a gradient that is not
    finite; `gap` and `few_effective_samples`, the bounds of the alerts RollcastLogprobGap and
    RollcastFewEffectiveSamples, in one step; `broken`, the curve has the verdict of the alert
    RollcastCurveBroken; `failed`, the trainer ends with an error. Empty = none."""
    weights: Literal["none", "step", "versions"] = "none"
    """Weights that are kept too, in float32, of model.lora the adapters alone. step = those before
    the step, for the gradient norm and the trainer's log-probs. versions = also those of every
    version that sampled a token of the step, for the generators' log-probs. Each version is kept
    once."""
    max_bytes: Annotated[int, Field(ge=1 << 20)] = 8 << 30
    """Bytes of all steps and weights that a run keeps. When they are more, the newest step stays,
    then those of the worst conditions, then newer ones. 8 GiB is about fifty steps of 48 x 16
    answers of 8,000 tokens, without weights."""

    @model_validator(mode="before")
    @classmethod
    def _read_boolean_key(cls, data: Any) -> Any:
        """YAML 1.1, which Helm reads a chart's values as, takes the key `on` for `true`."""
        if not isinstance(data, dict):
            return data
        return {"on" if key in (True, "true") else key: value for key, value in data.items()}

    @property
    def is_on(self) -> bool:
        return self.every_steps is not None or bool(self.on)
