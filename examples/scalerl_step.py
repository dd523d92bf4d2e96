"""A whole step of ScaleRL on a tiny model, top to bottom, with Rollcast's own parts and no service.

    python examples/scalerl_step.py

    curriculum -> prompts -> sampling -> grading -> effective batch -> loss
         ^                                              |               |
         +------------------- pass rates <--------------+               |
                                             AdamW <- clip <- gradient <+

A run does the same, in several processes: vLLM samples (`rollcast.generator`), prompts and
completions travel through Redis, `rollcast.trainer.learner` shards the model over ranks, and
weights are broadcast to the generators. Here, everything is in one process, and the task is one
that a model of 20,000 weights learns: the larger of two digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from rollcast.config.recipe import NoLengthControl, Optimizer, Recipe
from rollcast.recipe.curriculum import Curriculum
from rollcast.recipe.effective_batch import effective_batch
from rollcast.recipe.learning_rate import learning_rate
from rollcast.recipe.losses.loss import Loss, LossInputs, objective
from rollcast.recipe.losses.make import make_loss
from rollcast.trainer.learner.batch import TrainingSequence, denominator

END_TOKEN = 10
"""Ends a completion. Tokens 0 to 9 are the digits."""
VERSUS_TOKEN = 11
EQUALS_TOKEN = 12
VOCABULARY_SIZE = 13
NUM_STEPS = 80
SEED = 0
RECIPE = Recipe(
    prompts_per_step=16,
    rollouts_per_prompt=16,
    max_completion_tokens=3,
    length_control=NoLengthControl(),
    no_positive_resampling=None,
    exclude_truncated=False,  # a model that starts from nothing rarely ends its answers
    optimizer=Optimizer(learning_rate=3e-3, warmup_steps=5, epsilon=1e-8),
)
"""ScaleRL's loss, aggregation, advantages and filter; sizes and learning rate are those of a tiny
model."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer."""

    prompt_token_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]
    """log pi_gen of each token, as recorded while it was sampled: the denominator of the loss's
    ratio."""
    truncated: bool
    """Whether the budget ended it before its end token."""


def tiny_model() -> PreTrainedModel:
    torch.manual_seed(SEED)
    config = Qwen3Config(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=16,
    )
    return Qwen3ForCausalLM(config)


def prompt_tokens(prompt_id: str) -> list[int]:
    """The tokens of a prompt such as `3v4`."""
    left, right = prompt_id.split("v")
    return [int(left), VERSUS_TOKEN, int(right), EQUALS_TOKEN]


@torch.no_grad()
def sample(model: PreTrainedModel, prompt: list[int], recipe: Recipe) -> list[Completion]:
    """Sample a group: `rollouts_per_prompt` answers to one prompt, from the whole distribution at
    the temperature.
    """
    number = recipe.rollouts_per_prompt
    tokens = torch.tensor([prompt] * number)
    logprobs: list[Tensor] = []
    for _ in range(recipe.max_completion_tokens):
        logits = model(input_ids=tokens).logits[:, -1].float() / recipe.temperature
        drawn = torch.multinomial(logits.softmax(-1), 1)
        logprobs.append(logits.log_softmax(-1).gather(1, drawn)[:, 0])
        tokens = torch.cat([tokens, drawn], dim=1)
    answers = tokens[:, len(prompt) :].tolist()
    of_answers = torch.stack(logprobs, dim=1).tolist()
    return [_until_the_end(prompt, *both) for both in zip(answers, of_answers, strict=True)]


def _until_the_end(prompt: list[int], tokens: list[int], logprobs: list[float]) -> Completion:
    if END_TOKEN not in tokens:
        return Completion(prompt, tokens, logprobs, truncated=True)
    length = tokens.index(END_TOKEN) + 1
    return Completion(prompt, tokens[:length], logprobs[:length], truncated=False)


def reward(prompt_id: str, completion: Completion) -> float:
    """The verifier: 1 if the answer begins with the larger digit."""
    left, right = prompt_id.split("v")
    return float(completion.token_ids[0] == max(int(left), int(right)))


def training_batch(
    groups: Sequence[tuple[str, list[Completion]]], recipe: Recipe
) -> list[TrainingSequence]:
    """Return the rollouts that are trained on, each with its advantage and the weight of its
    tokens.

    Left out, if the recipe says so: truncated rollouts, and groups whose rewards are all equal.
    """
    rewards = np.array([reward(prompt_id, one) for prompt_id, group in groups for one in group])
    rollouts = [one for _, group in groups for one in group]
    batch = effective_batch(
        rewards=rewards,
        shaped=rewards,  # no length penalty
        group=np.array([index for index, (_, group) in enumerate(groups) for _ in group]),
        loss_tokens=np.array([len(one.token_ids) for one in rollouts]),
        excluded=np.array([recipe.exclude_truncated and one.truncated for one in rollouts]),
        normalisation=recipe.advantage_normalisation,
        aggregation=recipe.aggregation,
        zero_variance_filter=recipe.zero_variance_filter,
    )
    return [
        TrainingSequence(
            prompt_token_ids=np.array(one.prompt_token_ids, dtype=np.int32),
            token_ids=np.array(one.token_ids, dtype=np.int32),
            generator_logprobs=np.array(one.logprobs, dtype=np.float32),
            loss_mask=np.ones(len(one.token_ids), dtype=np.bool_),
            advantage=float(batch.advantages[index]),
            weight=float(batch.weights[index]),
        )
        for index, one in enumerate(rollouts)
        if batch.kept_mask[index]
    ]


def loss_inputs(
    model: PreTrainedModel, sequences: Sequence[TrainingSequence], temperature: float
) -> LossInputs:
    """One forward pass for each sequence; a real trainer packs them.

    Returns their loss tokens, one after the other.
    """
    logprobs, generator_logprobs, advantages, weights, rollout = [], [], [], [], []
    for index, sequence in enumerate(sequences):
        tokens = torch.from_numpy(
            np.concatenate([sequence.prompt_token_ids, sequence.token_ids])
        ).long()
        logits = model(input_ids=tokens[None]).logits[0] / temperature
        start = len(sequence.prompt_token_ids)
        predicted = logits[start - 1 : -1].log_softmax(
            -1
        )  # the token at position t is predicted at t - 1
        is_loss_token = torch.from_numpy(sequence.loss_mask)
        logprobs.append(predicted.gather(1, tokens[start:, None])[:, 0][is_loss_token])
        number = int(is_loss_token.sum())
        generator_logprobs.append(torch.from_numpy(sequence.generator_logprobs)[is_loss_token])
        advantages.append(torch.full((number,), sequence.advantage))
        weights.append(torch.full((number,), sequence.weight))
        rollout.append(torch.full((number,), index))
    joined = torch.cat(logprobs)
    return LossInputs(
        logprobs=joined,
        generator_logprobs=torch.cat(generator_logprobs).to(joined.dtype),
        advantages=torch.cat(advantages).to(joined.dtype),
        weights=torch.cat(weights).to(joined.dtype),
        rollout=torch.cat(rollout),
    )


def make_optimizer(model: PreTrainedModel, settings: Optimizer) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
    )


def update(
    model: PreTrainedModel,
    optimizer: torch.optim.AdamW,
    loss: Loss,
    sequences: Sequence[TrainingSequence],
    settings: Optimizer,
    updates: int,
    temperature: float = 1.0,
) -> float:
    """Make one optimizer step after `updates` earlier ones.

    Returns the norm of the gradient before clipping.
    """
    total, _ = objective(loss, loss_inputs(model, sequences, temperature))
    # The objective is maximised; its denominator is the whole batch's.
    (-total / denominator(sequences)).backward()  # type: ignore[no-untyped-call]
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = math.sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients))
    if norm > settings.max_grad_norm:
        for gradient in gradients:
            gradient.mul_(settings.max_grad_norm / norm)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(settings, updates)
    optimizer.step()
    optimizer.zero_grad()
    return norm


def main(num_steps: int = NUM_STEPS) -> list[float]:
    """Train, and return the mean reward of each step."""
    model = tiny_model()
    loss = make_loss(RECIPE.loss)
    optimizer = make_optimizer(model, RECIPE.optimizer)
    prompts = [f"{left}v{right}" for left in range(10) for right in range(10)]
    curriculum = Curriculum(prompts, seed=SEED, remove_at=RECIPE.no_positive_resampling)
    mean_rewards = []
    updates = 0
    for step in range(num_steps):
        drawn = [curriculum.draw() for _ in range(RECIPE.prompts_per_step)]
        groups = [
            (name, sample(model, prompt_tokens(name), RECIPE)) for name in drawn if name is not None
        ]
        for name, group in groups:
            rewards = [reward(name, one) for one in group]
            curriculum.observe(name, reward=sum(rewards), graded=len(group), sampled=len(group))
        sequences = training_batch(groups, RECIPE)
        norm = 0.0
        if sequences:  # no group with different rewards: nothing to learn from
            norm = update(
                model, optimizer, loss, sequences, RECIPE.optimizer, updates, RECIPE.temperature
            )
            updates += 1
        mean_rewards.append(
            float(np.mean([reward(name, one) for name, group in groups for one in group]))
        )
        print(
            f"step {step}: mean reward {mean_rewards[-1]:.3f}, {len(sequences)} rollouts, gradient "
            f"norm {norm:.2f}"
        )
    return mean_rewards


if __name__ == "__main__":
    main()
