from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from rollcast.config.losses.found import loss_classes
from rollcast.config.losses.python import CustomLoss
from rollcast.recipe.losses.make import make_loss
from rollcast.rollouts.records import RolloutGroup
from rollcast.trainer.learner.batch import MicroBatch, TrainingSequence, denominator
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.learner import Learner
from rollcast.trainer.learner.model import shard_policy
from rollcast.trainer.learner.ranks import Ranks
from tests.trainer.tiny_models import make_config, make_groups, make_sequences

CLIP_MAX, EPSILON = 5.0, 1e-6
ROUNDING = 3e-6
"""Of float32 gradients whose matrix products have other shapes: up to 1.3e-6 was seen, by
processor."""


def cispo_with_prompt_aggregation(model: torch.nn.Module, groups: list[RolloutGroup]) -> Tensor:
    """-J of ScaleRL (section 4 of the paper), token by token,
    with ordinary Python numbers around the model.
    """
    varied = [group for group in groups if len({rollout.reward for rollout in group.rollouts}) > 1]
    centred = {}
    for group in varied:
        mean = sum(rollout.reward for rollout in group.rollouts) / len(group.rollouts)
        for rollout in group.rollouts:
            centred[group.sequence, rollout.index] = rollout.reward - mean
    deviation = math.sqrt(sum(value**2 for value in centred.values()) / len(centred))
    objective = torch.zeros((), dtype=torch.float64)
    for group in varied:
        prompt = [int(token) for token in group.prompt_token_ids]
        inner, count = torch.zeros((), dtype=torch.float64), 0
        for rollout in group.rollouts:
            tokens = [int(token) for token in rollout.token_ids]
            logits = model(input_ids=torch.tensor([prompt + tokens])).logits[0]
            advantage = centred[group.sequence, rollout.index] / (deviation + EPSILON)
            for position, token in enumerate(tokens):
                if any(start <= position < end for start, end in rollout.loss_masked):
                    continue
                row = logits[len(prompt) + position - 1]
                logprob = row[token] - torch.log(torch.exp(row - row.max()).sum()) - row.max()
                ratio = min(math.exp(logprob.item() - float(rollout.logprobs[position])), CLIP_MAX)
                inner = inner + ratio * advantage * logprob
                count += 1
        objective = objective + inner / count
    return -objective / len(varied)


class SlowAdamW:
    """AdamW and clipping as in their papers, in float64."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        self.first = [torch.zeros_like(p) for p in parameters]
        self.second = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(
        self, number: int, rate: float, *, betas: tuple[float, float], eps: float, decay: float
    ) -> float:
        norm = math.sqrt(
            math.fsum(float((p.grad**2).sum()) for p in self.parameters if p.grad is not None)
        )
        for p, first, second in zip(self.parameters, self.first, self.second, strict=True):
            grad = p.grad * min(1.0, 1.0 / norm)  # type: ignore[operator]
            first.mul_(betas[0]).add_(grad * (1 - betas[0]))
            second.mul_(betas[1]).add_(grad**2 * (1 - betas[1]))
            p.sub_(rate * decay * p)
            p.sub_(
                rate
                * (first / (1 - betas[0] ** number))
                / ((second / (1 - betas[1] ** number)).sqrt() + eps)
            )
            p.grad = None
        return norm


def test_update_equals_a_slow_float64_loop(ranks: Ranks, model: Path, tmp_path: Path) -> None:
    config = make_config(model, tmp_path)
    policy = shard_policy(
        transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64),
        mesh=ranks.mesh,
        dtype=torch.float64,
        lm_head="fp32",
        temperature=1.0,
        logits_chunk_tokens=7,
        activation_checkpointing=False,
    )
    settings = config.recipe.optimizer
    learner = Learner(
        policy, optimizer_settings=settings, loss=make_loss(config.recipe.loss), ranks=ranks
    )
    reference = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    slow = SlowAdamW(list(reference.parameters()))
    for number in (1, 2, 3):
        loss = cispo_with_prompt_aggregation(reference, make_groups(number))
        loss.backward()
        rate = settings.learning_rate * number / settings.warmup_steps
        norm = slow.step(
            number, rate, betas=settings.betas, eps=settings.epsilon, decay=settings.weight_decay
        )
        sequences = make_sequences(number)
        micro_batches: list[MicroBatch] = [tuple(sequences[:4]), tuple(sequences[4:])]
        stats = learner.update(micro_batches, denominator(sequences))
        assert stats.loss == pytest.approx(loss.item(), rel=1e-9)
        assert stats.grad_norm == pytest.approx(norm, rel=1e-9)
        assert stats.learning_rate == pytest.approx(rate)
    expected = dict(reference.named_parameters())
    for name, weight in policy.named_weights():
        torch.testing.assert_close(weight.full_tensor(), expected[name], rtol=1e-7, atol=1e-9)


def gradients(
    ranks: Ranks, model: Path, folder: Path, micro_batches: list[MicroBatch]
) -> tuple[Tensor, Tensor]:
    """Return the whole gradient as AdamW's first moment saw it,
    and the weights after the update.
    """
    config = make_config(model, folder)
    settings = config.recipe.optimizer.model_copy(update={"max_grad_norm": 1e9})
    learner = LearnerGroup.build(config, ranks).learner
    learner.optimizer_settings = settings
    learner.update(
        micro_batches, denominator(s for micro_batch in micro_batches for s in micro_batch)
    )
    moments = [
        learner.optimizer.state[weight]["exp_avg"].full_tensor().flatten()
        for weight in learner.weights
    ]
    weights = [weight.full_tensor().flatten() for weight in learner.weights]
    return torch.cat(moments) / (1 - settings.betas[0]), torch.cat(weights)


def test_micro_batches_do_not_change_the_gradient(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    sequences = make_sequences(5)
    whole, _ = gradients(ranks, untied_model, tmp_path, [tuple(sequences)])
    cuts: list[list[MicroBatch]] = [
        [(sequence,) for sequence in sequences],
        [tuple(sequences[1::2]), tuple(sequences[::2])],
        [tuple(sequences), (), ()],
    ]
    for cut in cuts:
        found, _ = gradients(ranks, untied_model, tmp_path, cut)
        assert (found - whole).norm() / whole.norm() < ROUNDING


SHIPPED = [one.model_fields["kind"].default for one in loss_classes() if one is not CustomLoss]


@pytest.mark.parametrize("kind", SHIPPED)
def test_every_loss_trains_also_with_empty_micro_batches(
    ranks: Ranks, untied_model: Path, tmp_path: Path, kind: str
) -> None:
    recipe = {"loss": {"kind": kind}, "schedule": {"kind": "pipeline", "max_staleness": 0}}
    group = LearnerGroup.build(make_config(untied_model, tmp_path, recipe=recipe), ranks)
    before = [weight.full_tensor().clone() for weight in group.learner.weights]
    sequences = make_sequences(5)
    stats = group.learner.update([tuple(sequences), ()], denominator(sequences))
    assert stats.applied
    assert math.isfinite(stats.loss)
    assert any(
        not torch.equal(a, w.full_tensor())
        for a, w in zip(before, group.learner.weights, strict=True)
    )


def test_learning_rate_zero_leaves_every_bit(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(
        make_config(untied_model, tmp_path, recipe={"optimizer": {"learning_rate": 0.0}}), ranks
    )
    before = [weight.full_tensor().clone() for weight in group.learner.weights]
    gaps = {group.update(make_sequences(5)).logprob_gap_mean for _ in range(3)}
    assert len(gaps) == 1
    assert all(
        torch.equal(a, w.full_tensor()) for a, w in zip(before, group.learner.weights, strict=True)
    )


def test_a_gradient_that_is_not_finite_is_not_applied(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    before = [weight.full_tensor().clone() for weight in group.learner.weights]
    good = make_sequences(5)
    bad = [
        TrainingSequence(
            s.prompt_token_ids, s.token_ids, s.generator_logprobs, s.loss_mask, math.nan, s.weight
        )
        for s in good
    ]
    stats = group.update(bad)
    assert not stats.applied
    assert group.learner.updates == 0
    assert all(
        torch.equal(a, w.full_tensor()) for a, w in zip(before, group.learner.weights, strict=True)
    )
    assert group.update(good).applied


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("loss", [{"kind": "dapo"}, {"kind": "gspo", "length_normalised": False}])
def test_a_rollout_whose_ratio_overflows_is_counted_and_costs_no_update(
    ranks: Ranks, untied_model: Path, tmp_path: Path, loss: dict[str, object], sign: int
) -> None:
    """The generator held each of its tokens for all but impossible, so that e^95 and more stands
    for the ratio.
    """
    group = LearnerGroup.build(make_config(untied_model, tmp_path, recipe={"loss": loss}), ranks)
    before = [weight.full_tensor().clone() for weight in group.learner.weights]
    first, *others = make_sequences(5)
    odd = replace(
        first,
        generator_logprobs=np.full_like(first.generator_logprobs, -100.0),
        advantage=sign * abs(first.advantage),
    )
    plain, stats = group.update(others), group.update([odd, *others])
    assert (plain.applied, stats.applied) == (True, True)
    assert plain.clamped_ratios == 0
    assert stats.clamped_ratios == int(odd.loss_mask.sum())
    assert math.isfinite(stats.loss)
    assert any(
        not torch.equal(a, w.full_tensor())
        for a, w in zip(before, group.learner.weights, strict=True)
    )


@pytest.mark.parametrize("log_ratio", [30.0, 45.0, 60.0, 75.0])
@pytest.mark.parametrize("loss", [{"kind": "dapo"}, {"kind": "grpo"}])
def test_a_token_whose_ratio_is_huge_and_finite_does_not_cost_its_batch(
    ranks: Ranks, untied_model: Path, tmp_path: Path, loss: dict[str, object], log_ratio: float
) -> None:
    """Nothing clips the ratio of a wrong answer: its gradient is within float32, and the square of
    that is beyond.
    """
    group = LearnerGroup.build(make_config(untied_model, tmp_path, recipe={"loss": loss}), ranks)
    first, *others = make_sequences(5)
    generator_logprobs = first.generator_logprobs.copy()
    place = int(np.flatnonzero(first.loss_mask)[0])
    generator_logprobs[place] = (
        -log_ratio - 4.0
    )  # a random policy gives each of some fifty tokens about e^-4
    odd = replace(first, generator_logprobs=generator_logprobs, advantage=-abs(first.advantage))
    stats = group.update([odd, *others])
    assert stats.applied
    assert math.isfinite(stats.grad_norm)
    assert stats.grad_norm > 1e10


def test_a_wrong_denominator_is_noticed_before_the_weights_move(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    before = [weight.full_tensor().clone() for weight in group.learner.weights]
    micro_batches = [(sequence,) for sequence in make_sequences(3)]
    with pytest.raises(AssertionError):
        group.learner.update(micro_batches, 2 * denominator(make_sequences(3)))
    assert group.learner.updates == 0
    assert all(
        torch.equal(a, w.full_tensor()) for a, w in zip(before, group.learner.weights, strict=True)
    )


def test_stats_count_tokens(ranks: Ranks, untied_model: Path, tmp_path: Path) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    sequences = make_sequences(5)
    stats = group.update(sequences)
    assert stats.tokens == sum(len(s.prompt_token_ids) + len(s.token_ids) for s in sequences)
    assert stats.loss_tokens == sum(int(s.loss_mask.sum()) for s in sequences)
    # Random tokens under a random policy: the gap is what numpy says it is.
    plain = transformers.AutoModelForCausalLM.from_pretrained(untied_model, dtype=torch.float32)
    gaps, entropies = [], []
    for s in sequences:
        ids = torch.from_numpy(np.concatenate([s.prompt_token_ids, s.token_ids])).long()
        with torch.no_grad():
            rows = torch.log_softmax(
                plain(input_ids=ids[None]).logits[0, len(s.prompt_token_ids) - 1 : -1], 1
            )
        own = rows[torch.arange(len(s.token_ids)), torch.from_numpy(s.token_ids).long()].numpy()
        gaps.append(np.abs(own - s.generator_logprobs)[s.loss_mask])
        entropies.append(-(rows.exp() * rows).sum(1).numpy()[s.loss_mask])
    assert stats.logprob_gap_mean == pytest.approx(np.concatenate(gaps).mean(), rel=1e-4)
    assert stats.logprob_gap_max == pytest.approx(np.concatenate(gaps).max(), rel=1e-4)
    assert stats.entropy == pytest.approx(np.concatenate(entropies).mean(), rel=1e-4)
