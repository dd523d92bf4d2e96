"""Losses against slow loops that follow the printed equations, gradients against finite
differences.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.config.losses.cispo import CispoLoss
from rollcast.config.losses.clipped_surrogate import BaseLoss, DapoLoss, GrpoLoss
from rollcast.config.losses.gspo import GspoLoss
from rollcast.config.losses.reinforce import ReinforceLoss
from rollcast.config.losses.settings import LossSettings
from rollcast.recipe.effective_batch import EffectiveBatch, effective_batch
from rollcast.recipe.losses.cispo import Cispo
from rollcast.recipe.losses.clipped_surrogate import ClippedSurrogate
from rollcast.recipe.losses.gspo import Gspo
from rollcast.recipe.losses.loss import Loss, LossInputs, objective
from rollcast.recipe.losses.make import make_loss
from rollcast.recipe.losses.reinforce import Reinforce

LOSSES: dict[str, Loss] = {
    "cispo": Cispo(ratio_max=1.2),  # low enough that the truncation is exercised
    "dapo and base": ClippedSurrogate(clip_low=0.2, clip_high=0.26),
    "grpo": ClippedSurrogate(clip_low=0.2, clip_high=0.2),
    "gspo": Gspo(clip_low=0.05, clip_high=0.06),
    "gspo-printed": Gspo(clip_low=0.2, clip_high=0.3, length_normalised=False),
    "reinforce": Reinforce(),
}
AGGREGATIONS = ("prompt", "sample", "token")
NORMALISATIONS = ("batch", "prompt", "none", "leave_one_out")


@dataclass
class Rollout:
    prompt: int
    reward: float
    truncated: bool
    logprobs: list[float]
    generator_logprobs: list[float]
    carries_loss: list[bool]
    advantage: float = field(default=math.nan)


def random_rollouts(seed: int, num_prompts: int = 4) -> list[Rollout]:
    """Prompts with 3 to 7 rollouts each: an allocation by difficulty gives them unequally many."""
    rng = random.Random(seed)
    rollouts = []
    for prompt in range(num_prompts):
        for _ in range(rng.randint(3, 7)):
            length = rng.randint(1, 9)
            generator = [-rng.expovariate(1.0) for _ in range(length)]
            rollouts.append(
                Rollout(
                    prompt=prompt,
                    # Prompt 0 has no variance.
                    reward=1.0 if prompt == 0 else float(rng.random() < 0.5) - 0.3 * rng.random(),
                    truncated=rng.random() < 0.15,
                    logprobs=[value + rng.gauss(0, 0.3) for value in generator],
                    generator_logprobs=generator,
                    carries_loss=[rng.random() < 0.8 for _ in range(length)],
                )
            )
    return rollouts


def plan(rollouts: list[Rollout], aggregation: str, normalisation: str) -> EffectiveBatch:
    rewards = np.array([rollout.reward for rollout in rollouts])
    return effective_batch(
        rewards=rewards,
        shaped=rewards,
        group=np.array([rollout.prompt for rollout in rollouts], dtype=np.int64),
        loss_tokens=np.array([sum(rollout.carries_loss) for rollout in rollouts], dtype=np.int64),
        excluded=np.array([rollout.truncated for rollout in rollouts]),
        normalisation=normalisation,  # type: ignore[arg-type]
        aggregation=aggregation,  # type: ignore[arg-type]
    )


def inputs_of(
    rollouts: list[Rollout], batch: EffectiveBatch, indices: list[int], garbage: float = 0.0
) -> LossInputs:
    """Flatten the rollouts `indices` as a trainer does; `garbage` stands where a token carries no
    loss.
    """
    logprobs, generator, advantages, weights, rollout_index = [], [], [], [], []
    for position, index in enumerate(indices):
        rollout = rollouts[index]
        for t, has_loss in enumerate(rollout.carries_loss):
            logprobs.append(rollout.logprobs[t] if has_loss else garbage)
            generator.append(rollout.generator_logprobs[t] if has_loss else garbage)
            advantages.append(batch.advantages[index])
            weights.append(batch.weights[index] if has_loss else 0.0)
            rollout_index.append(position)
    return LossInputs(
        logprobs=torch.tensor(logprobs, dtype=torch.float64, requires_grad=True),
        generator_logprobs=torch.tensor(generator, dtype=torch.float64),
        advantages=torch.tensor(advantages, dtype=torch.float64),
        weights=torch.tensor(weights, dtype=torch.float64),
        rollout=torch.tensor(rollout_index, dtype=torch.int64),
    )


def slow_kept(rollouts: list[Rollout]) -> list[Rollout]:
    usable = [
        rollout for rollout in rollouts if not rollout.truncated and any(rollout.carries_loss)
    ]
    return [
        r for r in usable if len({other.reward for other in usable if other.prompt == r.prompt}) > 1
    ]


def slow_advantages(kept: list[Rollout], normalisation: str) -> None:
    centred = {}
    for rollout in kept:
        peers = [other.reward for other in kept if other.prompt == rollout.prompt]
        centred[id(rollout)] = rollout.reward - sum(peers) / len(peers)
    everything = math.sqrt(sum(value**2 for value in centred.values()) / len(kept)) if kept else 0.0
    for rollout in kept:
        group = [other for other in kept if other.prompt == rollout.prompt]
        value = centred[id(rollout)]
        if normalisation == "batch":
            value /= everything + 1e-6
        elif normalisation == "prompt":
            value /= math.sqrt(sum(centred[id(peer)] ** 2 for peer in group) / len(group)) + 1e-6
        elif normalisation == "leave_one_out":
            others = [peer.reward for peer in group if peer is not rollout]
            value = rollout.reward - sum(others) / len(others)
        rollout.advantage = value


def clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def slow_term(name: str, rollout: Rollout, t: int, frozen: Rollout) -> float:
    """One token's objective; `frozen` holds the log-probs behind a stop-gradient."""
    a = rollout.advantage
    if name == "cispo":
        ratio = math.exp(frozen.logprobs[t] - frozen.generator_logprobs[t])
        return min(ratio, 1.2) * a * rollout.logprobs[t]
    if name == "reinforce":
        return a * rollout.logprobs[t]
    if name in ("dapo and base", "grpo"):
        ratio = math.exp(rollout.logprobs[t] - rollout.generator_logprobs[t])
        return min(ratio * a, clip(ratio, 0.8, 1.2 if name == "grpo" else 1.26) * a)
    loss_tokens = [i for i, carries in enumerate(rollout.carries_loss) if carries]
    total = sum(rollout.logprobs[i] - rollout.generator_logprobs[i] for i in loss_tokens)
    if name == "gspo":
        ratio = math.exp(total / len(loss_tokens))
        return min(ratio * a, clip(ratio, 0.95, 1.06) * a)
    if name == "gspo-printed":
        ratio = math.exp(total)
        return min(ratio * a, clip(ratio, 0.8, 1.3) * a)
    raise NotImplementedError(
        f"slow_term in tests/recipe/test_losses.py has no equation for {name!r} of LOSSES: "
        "add a branch above that returns its term for one token"
    )


def slow_objective(
    name: str, aggregation: str, kept: list[Rollout], frozen: list[Rollout]
) -> float:
    terms = [
        [slow_term(name, r, t, f) for t, has_loss in enumerate(r.carries_loss) if has_loss]
        for r, f in zip(kept, frozen, strict=True)
    ]
    if aggregation == "token":
        return sum(map(sum, terms)) / sum(map(len, terms))
    if aggregation == "sample":
        return sum(sum(tokens) / len(tokens) for tokens in terms) / len(terms)
    prompts = sorted({rollout.prompt for rollout in kept})
    means = []
    for prompt in prompts:
        mine = [
            tokens for rollout, tokens in zip(kept, terms, strict=True) if rollout.prompt == prompt
        ]
        means.append(sum(map(sum, mine)) / sum(map(len, mine)))
    return sum(means) / len(means)


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_objective_and_gradient_agree_with_the_equations(
    name: str, aggregation: str, normalisation: str
) -> None:
    rollouts = random_rollouts(seed=len(name) + 10 * len(aggregation) + 100 * len(normalisation))
    kept = slow_kept(rollouts)
    slow_advantages(kept, normalisation)
    expected = slow_objective(name, aggregation, kept, kept)

    batch = plan(rollouts, aggregation, normalisation)
    inputs = inputs_of(rollouts, batch, list(range(len(rollouts))))
    total, denominator = objective(LOSSES[name], inputs)
    measured = total / denominator
    assert measured.item() == pytest.approx(expected, rel=1e-9)

    (gradient,) = torch.autograd.grad(measured, inputs.logprobs)
    step, position = 1e-6, 0
    for index, rollout in enumerate(rollouts):
        for t, has_loss in enumerate(rollout.carries_loss):
            if has_loss and batch.kept_mask[index]:
                where = kept.index(rollout)
                values = []
                for shift in (step, -step):
                    moved = Rollout(**{**vars(rollout), "logprobs": list(rollout.logprobs)})
                    moved.logprobs[t] += shift
                    shifted = [*kept[:where], moved, *kept[where + 1 :]]
                    values.append(slow_objective(name, aggregation, shifted, kept))
                numeric = (values[0] - values[1]) / (2 * step)
                assert gradient[position].item() == pytest.approx(numeric, rel=1e-5, abs=1e-8)
            else:
                assert gradient[position].item() == 0
            position += 1


@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(list(LOSSES)),
    aggregation=st.sampled_from(AGGREGATIONS),
    num_parts=st.integers(1, 6),
    shuffle=st.randoms(use_true_random=False),
)
@settings(max_examples=25)
def test_any_split_into_micro_batches_gives_the_same_totals_and_gradient(
    seed: int, name: str, aggregation: str, num_parts: int, shuffle: random.Random
) -> None:
    rollouts = random_rollouts(seed)
    batch = plan(rollouts, aggregation, "batch")

    def gradient_by_rollout(parts: list[list[int]]) -> tuple[float, float, dict[int, list[float]]]:
        total, denominator, gradients = 0.0, 0.0, {}
        for part in parts:
            inputs = inputs_of(rollouts, batch, part)
            part_sum, part_denominator = objective(LOSSES[name], inputs)
            (gradient,) = torch.autograd.grad(part_sum, inputs.logprobs)
            total, denominator = total + part_sum.item(), denominator + part_denominator.item()
            for position, index in enumerate(part):
                gradients[index] = gradient[inputs.rollout == position].tolist()
        return total, denominator, gradients

    order = list(range(len(rollouts)))
    whole_total, whole_denominator, whole = gradient_by_rollout([order])
    shuffle.shuffle(order)
    parts = [part for i in range(num_parts) if (part := order[i::num_parts])]
    split_total, split_denominator, split = gradient_by_rollout(parts)
    assert split_total == pytest.approx(whole_total, rel=1e-9, abs=1e-12)
    assert split_denominator == pytest.approx(whole_denominator, rel=1e-12)
    assert {index: pytest.approx(values, rel=1e-12) for index, values in split.items()} == whole


@pytest.mark.parametrize("garbage", [0.0, -math.inf, math.nan, 1e30])
@pytest.mark.parametrize("name", LOSSES)
def test_tokens_without_loss_reach_neither_value_nor_gradient(name: str, garbage: float) -> None:
    rollouts = random_rollouts(seed=3)
    batch = plan(rollouts, "prompt", "batch")
    everything = list(range(len(rollouts)))
    clean = objective(LOSSES[name], inputs_of(rollouts, batch, everything))
    inputs = inputs_of(rollouts, batch, everything, garbage)
    dirty = objective(LOSSES[name], inputs)
    assert (dirty[0].item(), dirty[1].item()) == (clean[0].item(), clean[1].item())
    (gradient,) = torch.autograd.grad(dirty[0], inputs.logprobs)
    assert torch.isfinite(gradient).all()
    assert (gradient[inputs.weights == 0] == 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_a_micro_batch_without_loss_tokens_adds_nothing(name: str) -> None:
    empty = torch.zeros(0, dtype=torch.float64, requires_grad=True)
    inputs = LossInputs(empty, empty, empty, empty, torch.zeros(0, dtype=torch.int64))
    assert [value.item() for value in objective(LOSSES[name], inputs)] == [0.0, 0.0]


def gradient_at(loss: Loss, log_ratio: float, advantage: float) -> float:
    logprob = torch.tensor([-1.0 + log_ratio], dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, dtype=torch.float64)
    inputs = LossInputs(logprob, -one, advantage * one, one, torch.zeros(1, dtype=torch.int64))
    objective(loss, inputs)[0].backward()
    assert logprob.grad is not None
    return logprob.grad.item()


@pytest.mark.parametrize(
    ("advantage", "ratio", "flows"),
    [(1, 1.3, False), (1, 0.5, True), (-1, 1.3, True), (-1, 0.5, False), (1, 1.1, True)],
)
def test_clipping_stops_the_gradient_only_where_the_policy_already_moved(
    advantage: float, ratio: float, flows: bool
) -> None:
    loss = ClippedSurrogate(clip_low=0.2, clip_high=0.26)
    expected = advantage * ratio if flows else 0.0
    assert gradient_at(loss, math.log(ratio), advantage) == pytest.approx(expected)


def test_cispo_truncates_the_weight_and_keeps_the_gradient() -> None:
    assert gradient_at(Cispo(ratio_max=5.0), math.log(40), -2.0) == pytest.approx(-10.0)
    assert gradient_at(Cispo(ratio_max=5.0), math.log(0.1), 1.0) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("chosen", "loss"),
    [
        (CispoLoss(), Cispo(5.0)),
        (DapoLoss(), ClippedSurrogate(0.2, 0.26)),
        (DapoLoss(clip_high=0.28), ClippedSurrogate(0.2, 0.28)),
        (BaseLoss(), ClippedSurrogate(0.2, 0.26)),
        (GrpoLoss(), ClippedSurrogate(0.2, 0.2)),
        (GrpoLoss(clip=0.1), ClippedSurrogate(0.1, 0.1)),
        (GspoLoss(), Gspo(3e-3, 4e-3)),
        (GspoLoss(length_normalised=False), Gspo(3e-3, 4e-3, length_normalised=False)),
        (ReinforceLoss(), Reinforce()),
    ],
)
def test_the_recipe_names_its_loss(chosen: LossSettings, loss: Loss) -> None:
    assert make_loss(chosen) == loss


class LogProbability:
    """The simplest objective: its terms are the log-probabilities themselves."""

    def terms(self, inputs: LossInputs) -> torch.Tensor:
        return inputs.logprobs

    def overflowing_tokens(self, inputs: LossInputs) -> torch.Tensor:
        return torch.zeros_like(inputs.logprobs, dtype=torch.bool)


def test_aggregations_weigh_prompts_rollouts_and_tokens() -> None:
    """Two prompts, three rollouts of 1, 3 and 4 tokens with terms 1, 2 and 4 per token."""
    results = {}
    rollouts = [
        Rollout(0, 1.0, False, [1.0], [0.0], [True]),
        Rollout(0, 0.0, False, [2.0] * 3, [0.0] * 3, [True] * 3),
        Rollout(1, 1.0, False, [4.0] * 4, [0.0] * 4, [True] * 4),
        Rollout(1, 0.0, True, [9.0] * 5, [0.0] * 5, [True] * 5),
    ]
    for aggregation in AGGREGATIONS:
        batch = effective_batch(
            rewards=np.array([1.0, 0.0, 1.0, 0.0]),
            shaped=np.array([1.0, 0.0, 1.0, 0.0]),
            group=np.array([0, 0, 1, 1]),
            loss_tokens=np.array([1, 3, 4, 5]),
            excluded=np.array([False, False, False, True]),
            aggregation=aggregation,  # type: ignore[arg-type]
            zero_variance_filter=False,
        )
        total, denominator = objective(LogProbability(), inputs_of(rollouts, batch, [0, 1, 2, 3]))
        results[aggregation] = (total / denominator).item()
    assert results["prompt"] == pytest.approx((7 / 4 + 4) / 2)
    assert results["sample"] == pytest.approx((1 + 2 + 4) / 3)
    assert results["token"] == pytest.approx((1 + 6 + 16) / 8)
