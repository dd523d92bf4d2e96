"""Settings of the algorithm.

Defaults are ScaleRL's (arXiv 2510.13786); a docstring says if the paper gives none.
"""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import FolderOrName, Settings
from rollcast.config.corrections import NO_CORRECTIONS, Corrections
from rollcast.config.custom_function import CustomFunction
from rollcast.config.distillation import Distillation
from rollcast.config.episodes import Episodes
from rollcast.config.losses.cispo import CispoLoss
from rollcast.config.losses.found import Loss


class PipelineSchedule(Settings):
    kind: Literal["pipeline"] = "pipeline"
    """PipelineRL-k: generators stream, every update is published immediately (paper section
    3.1)."""
    max_staleness: Annotated[int, Field(ge=0, le=64)] = 8
    """k, in optimizer steps: a batch used at step t holds no token older than t - k. 0 = on-policy.
    The paper adopts 8."""


class PPOOffPolicySchedule(Settings):
    kind: Literal["ppo-off-policy"] = "ppo-off-policy"
    """PPO-off-policy-k: generate k batches, make k updates, publish once (paper section 3.1)."""
    max_staleness: Annotated[int, Field(ge=1, le=64)] = 8
    """k, the number of updates per generation phase. The paper tests 1 and 8."""


Schedule = Annotated[PipelineSchedule | PPOOffPolicySchedule, Field(discriminator="kind")]


class Interruption(Settings):
    kind: Literal["interruption"] = "interruption"
    """Forced end of thinking: the phrase is appended when thinking is too long (A.10)."""
    phrase: Annotated[str, Field(min_length=1)] = (
        "Okay, time is up. Let me stop thinking and formulate a final answer now. </think>"
    )
    """Appended as forced tokens (section 4's wording; the paper prints three). They carry no loss:
    NOT FOUND in the paper, our choice, since they were not sampled."""
    end_of_thinking: Annotated[str, Field(min_length=1)] = "</think>"
    """The marker the model writes itself when it stops thinking in time."""
    position: tuple[int, int] = (10_000, 12_000)
    """Range of the completion position, in tokens, at which thinking is cut; drawn uniformly for
    each rollout (A.10)."""
    answer_tokens: Annotated[int, Field(ge=1)] = 2_048
    """Budget of the answer after the phrase (A.3). A completion that ended its thinking itself, in
    time, is not limited by it: its answer may use the remaining max_completion_tokens."""


class LengthPenalty(Settings):
    kind: Literal["penalty"] = "penalty"
    """Eq (9): R_len = clip((L_max - |y|) / L_cache - 1, -1, 0), added to correct answers only;
    halved here, because right and wrong are 1 apart and not 2. So the longest correct answer counts
    0.5, half-way between right and wrong, as in the paper."""
    max_tokens: Annotated[int, Field(ge=1)] = 14_000
    """L_max, in completion tokens (Eq 9)."""
    cache_tokens: Annotated[int, Field(ge=1)] = 2_000
    """L_cache, in completion tokens: the penalty grows over this many (Eq 9)."""


class NoLengthControl(Settings):
    kind: Literal["none"] = "none"
    """Completions run until they end or the budget does."""


LengthControl = Annotated[
    Interruption | LengthPenalty | NoLengthControl | CustomFunction, Field(discriminator="kind")
]


class FixedAllocation(Settings):
    kind: Literal["fixed"] = "fixed"
    """Every prompt is answered `rollouts_per_prompt` times (A.3)."""


class DifficultyAllocation(Settings):
    kind: Literal["difficulty"] = "difficulty"
    """Tasks dispatched together share their `rollouts_per_prompt` each: more go to prompts whose
    pass rate in training so far is near one half, where the variance p (1 - p) is largest. A new
    prompt gets exactly that number, as does a task that is dispatched alone. Not in the paper."""
    least: Annotated[int, Field(ge=2)] = 8
    """Fewest completions of a prompt. Half of the base recipe's 16, so that no group becomes a coin
    toss."""
    most: Annotated[int, Field(ge=2, le=4_096)] = 32
    """Most completions of a prompt; generators keep this many slots free for each. Twice the base
    recipe's 16."""


RolloutAllocation = Annotated[FixedAllocation | DifficultyAllocation, Field(discriminator="kind")]


class KlPenalty(Settings):
    """Pull towards a frozen reference policy: coefficient x KL(pi_train || pi_ref) is taken off
    every token's objective.

    Tokens of older weights are weighted by their ratio. Masked and averaged like the loss.
    """

    coefficient: Annotated[float, Field(gt=0)] = 1e-3
    """Per nat. The paper trains without; 0.001 is what DeepSeek-R1's authors used with GRPO."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Which estimate of a token's KL is reported, of x = log pi_train - log pi_ref: k1 = x,
    k2 = x^2 / 2, k3 = exp(-x) - 1 + x, which is unbiased and never negative. The gradient is that
    of the KL, whichever is chosen."""
    reference: Annotated[FolderOrName, Field(min_length=1)] | None = None
    """Folder or hub name of the reference policy, with the same vocabulary. None = `model.path`,
    the model the run started from. It is held in the model's dtype, sharded like the policy."""


class Optimizer(Settings):
    learning_rate: Annotated[float, Field(ge=0, le=0.01)] = 5e-7
    """Constant after warm-up (A.3). 0 trains nothing: used to measure the log-prob drift. AdamW
    moves every weight by about this much in an update, so that more than 0.01 destroys any
    model."""
    scale_with_batch: bool = False
    """Multiply the learning rate by sqrt(prompts_per_step x rollouts_per_prompt / 768), 768 being
    the base recipe's batch, 48 x 16: the gradient noise of a batch n times as large is sqrt(n)
    times as small, and AdamW divides by it. Not in the paper, which gives 5e-7 for every batch."""
    warmup_steps: Annotated[int, Field(ge=0)] = 100
    """Linear warm-up, in optimizer steps (A.3)."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (
        0.9,
        0.95,
    )
    """NOT FOUND in the paper; the usual choice for language models."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-15
    """AdamW epsilon (A.3)."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """AdamW weight decay (A.3)."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradient clipping by global norm. NOT FOUND in the paper; the field's usual value."""


class Recipe(Settings):
    """One RL recipe.

    Batch: `prompts_per_step` groups of `rollouts_per_prompt` rollouts for each optimizer step.
    """

    schedule: Schedule = PipelineSchedule()
    """How generation and training interleave."""
    loss: Loss = CispoLoss()
    """The objective; its numerator is the trainer's log-prob, its denominator the generator's (Eq
    2)."""
    aggregation: Literal["prompt", "sample", "token"] = "prompt"
    """How token terms are averaged (section 3.2): every prompt, every sample or every token equal.
    Where prompts have unequally many rollouts, only `prompt` still counts each of them once."""
    advantage_normalisation: Literal["batch", "prompt", "none", "leave_one_out"] = "batch"
    """Divisor of the centred reward: std over the batch, over the prompt's group, or nothing.
    `leave_one_out` takes the mean of the OTHER rollouts off and divides by nothing: the baseline of
    REINFORCE; not in the paper. Rewards are 0 and 1 here, -1 and 1 in the paper (A.3): where
    nothing is divided by, advantages are half the paper's."""
    advantage: CustomFunction | None = None
    """A function of your own in place of `advantage_normalisation`. None = that setting decides."""
    filter: CustomFunction | None = None
    """A function of your own that decides on the groups which the zero-variance filter keeps: all
    groups, if that is off. None = every such group is trained on."""
    curriculum: CustomFunction | None = None
    """A function of your own that gives each prompt, when its turn comes, the probability with
    which it is drawn. Prompts that `no_positive_resampling` removed are not asked about. None = 1
    for each."""
    kl: KlPenalty | None = None
    """Penalty on the distance to a reference policy. None = off, at no cost: the paper trains
    without (A.3)."""
    distillation: Distillation | None = None
    """Learn from a teacher's log-probs, alone or next to the reward. None = off, at no cost. Not in
    the paper."""
    entropy_bonus: Annotated[float, Field(ge=0)] = 0.0
    """Coefficient of the policy's entropy (nats per token, over the whole vocabulary) in the
    objective, weighted like the loss. 0 = off, at no cost. Not in the paper."""
    scale_by_difficulty: bool = False
    """Multiply kl.coefficient by 2 p and entropy_bonus by 2 (1 - p), p being the prompt's pass rate
    in the batch: easy prompts stay near the reference, hard ones explore. False = the same for all
    prompts. Not in the paper."""
    corrections: Corrections = NO_CORRECTIONS
    """Truncated importance sampling and IcePop's mask, for generators that differ from the trainer.
    Off, as in the paper."""
    lm_head: Literal["fp32", "model"] = "fp32"
    """Precision of the logits, in the trainer AND the generators; one side alone is refused
    (A.19)."""
    router_replay: bool = False
    """Mixtures of experts: each rollout says which experts the generator's routers chose, and the
    trainer's routers choose the same (arXiv 2510.11370). Scores and gradients stay the trainer's
    own. Costs one byte for each choice of each token in Redis: 384 for 48 layers of 8, compared
    with 12 bytes a token otherwise (docs/models.md). Not in the paper. False: a router that decides
    otherwise is seen in the log-prob gap."""
    zero_variance_filter: bool = True
    """Drop groups whose rewards are all equal, before any length penalty, from the effective batch
    (section 3.2)."""
    refill_filtered: bool = False
    """Groups that the zero-variance filter drops do not count towards `prompts_per_step`: others
    are generated in their place, as in DAPO. Costs generation and favours prompts of middling
    difficulty. False as in the paper: the batch is smaller."""
    no_positive_resampling: Annotated[float, Field(gt=0, le=1)] | None = 0.9
    """Prompts whose historical pass rate reaches this leave training for good. None = uniform
    sampling, and so is every value if a teacher alone decides (`distillation`): right answers too
    are to become the teacher's."""
    unique_prompts: Annotated[int, Field(ge=1)] | None = None
    """Train on this many prompts only, drawn by the seed, of every part of a mixture in proportion
    to its size; a smaller draw is contained in a larger one. Fewer prompts make more epochs of the
    same compute: the axis of data reuse. None = all, as in the paper."""
    length_control: LengthControl = Interruption()
    """Keeps completions within the budget. Left out, `rollcast up` uses none if the tokenizer lacks
    the marker or completions have less than 2,048 tokens, and else moves the position with the
    budget."""
    exclude_truncated: bool = True
    """Truncated rollouts are left out of the effective batch (A.15). False = they are trained on
    with reward 0, whatever the verifier found, as evaluations count them."""
    prompts_per_step: Annotated[int, Field(ge=1)] = 48
    """P, groups per optimizer step (A.3). Left out, `rollcast up` takes no more than there are
    training prompts."""
    rollouts_per_prompt: Annotated[int, Field(ge=2)] = 16
    """G, completions per prompt (A.3)."""
    rollout_allocation: RolloutAllocation = FixedAllocation()
    """Whether every prompt has G completions, or G on average, by its difficulty."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Sampling temperature. NOT FOUND in the paper; 1 makes the sampled distribution the trained
    one. Other values divide the trainer's logits too."""
    max_prompt_tokens: Annotated[int, Field(ge=1)] = 2_048
    """Longer prompts are skipped and counted (A.3). Left out, `rollcast up` takes the length of the
    longest prompt, at most half of model.max_length, if this and max_completion_tokens together
    exceed that."""
    max_completion_tokens: Annotated[int, Field(ge=1)] = 14_336
    """Whole budget of a completion: 12,288 of thinking and 2,048 of solution (A.3). Left out,
    `rollcast up` takes no more than model.max_length leaves."""
    episodes: Episodes = Episodes()
    """Budgets and credit of prompts that are answered in an environment (`tasks.environments`)."""
    optimizer: Optimizer = Optimizer()
    """AdamW with the paper's values."""

    @property
    def uses_reward(self) -> bool:
        """Whether rewards decide on the batch: not if a teacher alone does."""
        return self.distillation is None or self.distillation.with_reward

    @property
    def removal_pass_rate(self) -> float | None:
        """Pass rate at which prompts leave training; None = none leave."""
        return self.no_positive_resampling if self.uses_reward else None

    @property
    def custom_functions(self) -> dict[str, CustomFunction]:
        """The parts that are functions of the user's own, by their settings."""
        parts = {
            "recipe.loss": self.loss,
            "recipe.advantage": self.advantage,
            "recipe.filter": self.filter,
            "recipe.curriculum": self.curriculum,
            "recipe.length_control": self.length_control,
        }
        return {
            setting: recipe_part
            for setting, recipe_part in parts.items()
            if isinstance(recipe_part, CustomFunction)
        }

    @property
    def most_rollouts_per_prompt(self) -> int:
        """Completions that one training task may ask for."""
        allocation = self.rollout_allocation
        return (
            allocation.most
            if isinstance(allocation, DifficultyAllocation)
            else self.rollouts_per_prompt
        )
