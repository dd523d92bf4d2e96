"""Ratios that a step reports, and corrections of the loss, in whole updates against plain Hugging
Face models.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from tests.trainer.tiny_models import make_config, make_sequences

TRUNCATED, LOW, HIGH = 1.1, 0.8, 1.3
ROUNDING = 1e-4
"""Of float32 gradients that nearly cancel, relative to float64."""


@pytest.fixture(scope="module")
def sequences(untied_model: Path) -> list[TrainingSequence]:
    """Tokens of a generator that is some tenths of a nat away from the trainer."""
    rng = np.random.default_rng(8)
    model = transformers.AutoModelForCausalLM.from_pretrained(untied_model, dtype=torch.float64)
    moved = []
    for sequence in make_sequences(5):
        own = logprobs(model, sequence).detach().numpy()
        apart = own + rng.normal(0, 0.3, len(own))
        moved.append(replace(sequence, generator_logprobs=apart.astype(np.float32)))
    return moved


def logprobs(model: Any, sequence: TrainingSequence) -> Tensor:
    """[L] log-probabilities of the completion, in float64."""
    ids = torch.from_numpy(np.concatenate([sequence.prompt_token_ids, sequence.token_ids])).long()
    rows = torch.log_softmax(model(input_ids=ids[None]).logits[0].double(), 1)
    length = len(sequence.token_ids)
    return rows[torch.arange(len(ids) - length - 1, len(ids) - 1), ids[-length:]]


def slow_reinforce(model: Any, sequences: list[TrainingSequence]) -> Tensor:
    """-J of `reinforce` with the ratio of each token's sequence truncated, and tokens outside [LOW,
    HIGH] left out.
    """
    objective, denominator = torch.zeros((), dtype=torch.float64), 0.0
    for s in sequences:
        own = logprobs(model, s)
        ratios = [
            math.exp(p.item() - float(q)) for p, q in zip(own, s.generator_logprobs, strict=True)
        ]
        kept = [
            bool(has_loss) and LOW <= ratio <= HIGH
            for has_loss, ratio in zip(s.loss_mask, ratios, strict=True)
        ]
        product = math.prod(ratio for ratio, is_kept in zip(ratios, kept, strict=True) if is_kept)
        for logprob, is_kept in zip(own, kept, strict=True):
            if is_kept:
                objective = objective + s.weight * min(product, TRUNCATED) * s.advantage * logprob
        denominator += s.weight * int(s.loss_mask.sum())
    return -objective / denominator


def test_a_corrected_update_equals_a_slow_loop(
    ranks: Ranks, untied_model: Path, tmp_path: Path, sequences: list[TrainingSequence]
) -> None:
    recipe = {
        "loss": {"kind": "reinforce"},
        "corrections": {
            "truncation": {"ratio_max": TRUNCATED, "over": "sequence"},
            "mask": {"ratio_min": LOW, "ratio_max": HIGH},
        },
        "optimizer": {"max_grad_norm": 1e9},
    }
    group = LearnerGroup.build(make_config(untied_model, tmp_path, recipe=recipe), ranks)
    plain = transformers.AutoModelForCausalLM.from_pretrained(untied_model, dtype=torch.float64)
    loss = slow_reinforce(plain, sequences)
    loss.backward()
    stats = group.update(sequences)
    assert stats.loss == pytest.approx(loss.item(), rel=1e-5)
    learner = group.learner
    gradients = dict(plain.named_parameters())
    found, expected = [], []
    for name, weight in learner.policy.named_weights():
        moment = learner.optimizer.state[weight]["exp_avg"].full_tensor() / (
            1 - learner.optimizer_settings.betas[0]
        )
        gradient = gradients[name].grad
        assert gradient is not None
        found.append(moment.double().flatten())
        expected.append(gradient.flatten())
    wanted = torch.cat(expected)
    assert ((torch.cat(found) - wanted).norm() / wanted.norm()).item() < ROUNDING


@pytest.mark.parametrize(
    ("loss", "corrections"),
    [
        ({"kind": "cispo", "ratio_max": TRUNCATED}, {}),
        (
            {"kind": "dapo", "clip_low": 0.2, "clip_high": 0.1},
            {"mask": {"ratio_min": LOW, "ratio_max": HIGH}},
        ),
        ({"kind": "reinforce"}, {"truncation": {"ratio_max": TRUNCATED}}),
    ],
)
def test_a_step_reports_its_ratios(
    ranks: Ranks,
    untied_model: Path,
    tmp_path: Path,
    sequences: list[TrainingSequence],
    loss: dict[str, Any],
    corrections: dict[str, Any],
) -> None:
    recipe = {"loss": loss, "corrections": corrections}
    group = LearnerGroup.build(make_config(untied_model, tmp_path, recipe=recipe), ranks)
    plain = transformers.AutoModelForCausalLM.from_pretrained(untied_model, dtype=torch.float64)
    ratios, advantages = [], []
    for s in sequences:
        gaps = logprobs(plain, s).detach().numpy() - s.generator_logprobs
        ratios.append(np.exp(gaps[s.loss_mask]))
        advantages.append(np.full(len(ratios[-1]), s.advantage))
    rho, advantage = np.concatenate(ratios), np.concatenate(advantages)
    stats = group.update(sequences)
    assert stats.effective_sample_share == pytest.approx(
        rho.sum() ** 2 / (len(rho) * (rho**2).sum()), rel=1e-4
    )
    assert stats.generator_kl == pytest.approx((rho - 1 - np.log(rho)).mean(), rel=1e-3)
    is_masked = (
        (rho < LOW) | (rho > HIGH) if corrections.get("mask") else np.zeros(len(rho), dtype=bool)
    )
    is_high = (rho > TRUNCATED) & ~is_masked
    is_low = np.zeros(len(rho), dtype=bool)
    if loss["kind"] == "dapo":
        is_high &= advantage > 0
        is_low = (rho < 0.8) & (advantage < 0) & ~is_masked
    assert stats.ratios_masked == pytest.approx(is_masked.mean())
    assert stats.ratios_clipped_high == pytest.approx(is_high.mean())
    assert stats.ratios_clipped_low == pytest.approx(is_low.mean())
    assert is_high.any()
