"""Settings of the algorithm. Every default is the ScaleRL recipe (arXiv 2510.13786); where the paper is silent it says so."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rollcast.config.base import Settings


class PipelineSchedule(Settings):
    kind: Literal["pipeline"] = "pipeline"
    """PipelineRL-k: generators stream, every update is published at once (paper section 3.1)."""
    max_staleness: Annotated[int, Field(ge=0, le=64)] = 8
    """k, in optimizer steps: a batch used at step t holds no token older than t - k. 0 = on-policy. The paper adopts 8."""


class PPOOffPolicySchedule(Settings):
    kind: Literal["ppo-off-policy"] = "ppo-off-policy"
    """PPO-off-policy-k: generate k batches, make k updates, publish once (paper section 3.1)."""
    max_staleness: Annotated[int, Field(ge=1, le=64)] = 8
    """k, the number of updates per generation phase. The paper tests 1 and 8."""


Schedule = Annotated[PipelineSchedule | PPOOffPolicySchedule, Field(discriminator="kind")]


class CispoLoss(Settings):
    kind: Literal["cispo"] = "cispo"
    """Truncated importance-sampling REINFORCE (Eq 4)."""
    ratio_max: Annotated[float, Field(gt=0)] = 5.0
    """Upper bound of the stop-gradient ratio. The paper finds no difference between 4, 5 and 8 and does not state ScaleRL's; 5 is the middle."""


class GspoLoss(Settings):
    kind: Literal["gspo"] = "gspo"
    """Sequence-level ratio, clipped (paper section 3.2)."""
    clip_low: Annotated[float, Field(ge=0)] = 3e-3
    """Lower clip distance; 1e-4 is poor, 3e-3 fine (A.17.3)."""
    clip_high: Annotated[float, Field(ge=0)] = 4e-3
    """Upper clip distance (A.17.3)."""


class DapoLoss(Settings):
    kind: Literal["dapo"] = "dapo"
    """Token ratio with asymmetric clip (Eq 8)."""
    clip_low: Annotated[float, Field(ge=0)] = 0.2
    """Lower clip distance (A.16)."""
    clip_high: Annotated[float, Field(ge=0)] = 0.26
    """Upper clip distance (A.16; the original DAPO uses 0.28)."""


class GrpoLoss(Settings):
    kind: Literal["grpo"] = "grpo"
    """Token ratio with symmetric clip (Eq 7)."""
    clip: Annotated[float, Field(ge=0)] = 0.2
    """Clip distance (A.16)."""


Loss = Annotated[CispoLoss | GspoLoss | DapoLoss | GrpoLoss, Field(discriminator="kind")]


class Interruption(Settings):
    kind: Literal["interruption"] = "interruption"
    """Forced end of thinking: the phrase is appended when thinking is too long (A.10)."""
    phrase: str = "Okay, time is up. Let me stop thinking and formulate a final answer now. </think>"
    """Appended as forced tokens (section 4's wording; the paper prints three). They carry no loss: NOT FOUND in the paper, our choice, since they were not sampled."""
    end_of_thinking: str = "</think>"
    """The marker the model writes itself when it stops thinking in time."""
    position: tuple[int, int] = (10_000, 12_000)
    """Range of the completion position, in tokens, at which thinking is cut; drawn uniformly for each rollout (A.10)."""
    answer_tokens: Annotated[int, Field(ge=1)] = 2_048
    """Budget of the answer after thinking (A.3)."""

    @model_validator(mode="after")
    def _position_is_a_range(self) -> Interruption:
        low, high = self.position
        if not 1 <= low <= high:
            raise ValueError(f"position {self.position} must be [low, high] with 1 <= low <= high")
        return self


class LengthPenalty(Settings):
    kind: Literal["penalty"] = "penalty"
    """Eq (9): R_len = clip((L_max - |y|) / L_cache - 1, -1, 0), added to correct answers only."""
    max_tokens: Annotated[int, Field(ge=1)] = 14_000
    """L_max (A.16)."""
    cache_tokens: Annotated[int, Field(ge=1)] = 2_000
    """L_cache (A.16)."""


class NoLengthControl(Settings):
    kind: Literal["none"] = "none"
    """Completions run until they end or the budget does."""


LengthControl = Annotated[Interruption | LengthPenalty | NoLengthControl, Field(discriminator="kind")]


class Optimizer(Settings):
    learning_rate: Annotated[float, Field(ge=0)] = 5e-7
    """Constant after warm-up (A.3). 0 trains nothing: used to measure the log-prob drift."""
    warmup_steps: Annotated[int, Field(ge=0)] = 100
    """Linear warm-up, in optimizer steps (A.3)."""
    betas: tuple[float, float] = (0.9, 0.95)
    """NOT FOUND in the paper; the usual choice for language models."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-15
    """AdamW epsilon (A.3)."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """AdamW weight decay (A.3)."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradient clipping by global norm. NOT FOUND in the paper; the field's usual value."""


class Recipe(Settings):
    """One RL recipe. Batch: `prompts_per_step` groups of `rollouts_per_prompt` rollouts for each optimizer step."""

    schedule: Schedule = PipelineSchedule()
    """How generation and training interleave."""
    loss: Loss = CispoLoss()
    """The objective; its numerator is the trainer's log-prob, its denominator the generator's (Eq 2)."""
    aggregation: Literal["prompt", "sample", "token"] = "prompt"
    """How token terms are averaged (section 3.2): every prompt, every sample or every token equal."""
    advantage_normalisation: Literal["batch", "prompt", "none"] = "batch"
    """What the centred reward is divided by: std over the batch, over the prompt's group, or nothing."""
    lm_head: Literal["fp32", "model"] = "fp32"
    """Precision of the logits, in the trainer AND the generators; one side alone is refused (A.19)."""
    zero_variance_filter: bool = True
    """Drop groups whose rewards are all equal from the effective batch; they are not refilled (section 3.2)."""
    no_positive_resampling: Annotated[float, Field(gt=0, le=1)] | None = 0.9
    """Prompts whose historical pass rate reaches this leave training for good. None = uniform sampling."""
    length_control: LengthControl = Interruption()
    """What keeps completions within the budget."""
    exclude_truncated: bool = True
    """Truncated rollouts are left out of the effective batch (A.15)."""
    prompts_per_step: Annotated[int, Field(ge=1)] = 48
    """P, groups per optimizer step (A.3)."""
    rollouts_per_prompt: Annotated[int, Field(ge=2)] = 16
    """G, completions per prompt (A.3)."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Of sampling. NOT FOUND in the paper; 1 makes the sampled distribution the trained one. Other values divide the trainer's logits too."""
    max_prompt_tokens: Annotated[int, Field(ge=1)] = 2_048
    """Longer prompts are skipped and counted (A.3)."""
    max_completion_tokens: Annotated[int, Field(ge=1)] = 14_336
    """Whole budget of a completion: 12,288 of thinking and 2,048 of solution (A.3)."""
    optimizer: Optimizer = Optimizer()
    """AdamW with the paper's values."""

    @model_validator(mode="after")
    def _interruption_fits_the_budget(self) -> Recipe:
        control = self.length_control
        if (
            isinstance(control, Interruption)
            and control.position[1] + control.answer_tokens > self.max_completion_tokens
        ):
            raise ValueError(
                f"length_control.position {control.position[1]} + answer_tokens {control.answer_tokens} exceeds "
                f"max_completion_tokens {self.max_completion_tokens}; lower the first two or raise the last"
            )
        return self
