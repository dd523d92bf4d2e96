"""Measurements of an update: sums over loss tokens of each micro-batch, added up over all ranks,
and the results.

Sums stay on the device until the step's end: reading one earlier would make the host wait for the
pass, and the device for the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Number = TypeVar("Number")


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """Results of one update; means are over the loss tokens of the batch."""

    applied: bool
    """False: the gradient was not finite, so the weights and the optimizer were left as they
    were."""
    loss: float
    """-J, regularisation included."""
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    logprob_gap_mean: float
    """|log pi_train - log pi_gen|: numerical mismatch and off-policyness together."""
    logprob_gap_max: float
    entropy: float
    """Nats per token."""
    loss_tokens: int
    tokens: int
    """Prompts and completions, without padding."""
    micro_batches: int
    """Per rank."""
    seconds: float
    kl: float | None = None
    """Nats per token to the reference policy, weighted like the loss. None: the recipe has no KL
    penalty."""
    clamped_ratios: int = 0
    """Loss tokens at which a ratio of the objective overflowed and was clamped
    (`rollcast.recipe.ratios`)."""
    teacher_kl: float | None = None
    """Nats per loss token: mean of log pi_gen - log pi_teacher. None: no teacher is held by the
    ranks."""
    ratios_clipped_low: float | None = 0.0
    """Share of the loss tokens that the loss clipped at its lower bound. None, here and below: the
    loss is a function of the user's own. In steps.jsonl and in the metric clipped is called cut."""
    ratios_clipped_high: float | None = 0.0
    """Share of the loss tokens that the loss clipped at its upper bound, or whose ratio
    `recipe.corrections.truncation` lowered."""
    ratios_masked: float = 0.0
    """Share of the loss tokens that `recipe.corrections.mask` left out."""
    effective_sample_share: float = 1.0
    """(sum rho)^2 / (n sum rho^2) over the n loss tokens, rho = pi_train / pi_gen: 1 if all ratios
    are equal."""
    generator_kl: float = 0.0
    """Nats per token, KL(pi_gen || pi_train): the mean of rho - 1 - log rho
    (`rollcast.recipe.ratios`)."""


class Sums(NamedTuple, Generic[Number]):
    """Sums over loss tokens.

    `Number`: float64 scalars on the device of one micro-batch, or floats of the batch.
    """

    objective: Number
    """sum_t w_t J_t, regularisation included."""
    weight: Number
    """sum_t w_t."""
    kl: Number
    """sum_t w_t KL_t; 0 without a KL penalty."""
    logprob_gap: Number
    entropy: Number
    ratio: Number
    squared_ratio: Number
    divergence: Number
    clamped_ratios: Number
    clipped_low: Number
    clipped_high: Number
    masked: Number
    loss_tokens: Number
    tokens: Number


def batch_figures(
    totals: Sums[float],
    largest_gap: float,
    denominator: float,
    *,
    has_reference: bool,
    reports_clipped: bool,
) -> dict[str, Any]:
    """Return the fields of `UpdateStats` that follow from the sums over a batch's tokens."""
    num_tokens = totals.loss_tokens
    return {
        "loss": -totals.objective / denominator,
        "logprob_gap_mean": totals.logprob_gap / num_tokens,
        "logprob_gap_max": largest_gap,
        "entropy": totals.entropy / num_tokens,
        "loss_tokens": int(num_tokens),
        "tokens": int(totals.tokens),
        "kl": totals.kl / denominator if has_reference else None,
        "clamped_ratios": int(totals.clamped_ratios),
        **ratio_shares(totals, reports_clipped=reports_clipped),
    }


def ratio_shares(totals: Sums[float], *, reports_clipped: bool) -> dict[str, Any]:
    """Return the fields of `UpdateStats` about the batch's ratios. No token is effective if all
    ratios underflow.

    `reports_clipped`: whether the loss names the tokens that it clips.
    """
    num_tokens = totals.loss_tokens
    squares = num_tokens * totals.squared_ratio
    return {
        "ratios_clipped_low": totals.clipped_low / num_tokens if reports_clipped else None,
        "ratios_clipped_high": totals.clipped_high / num_tokens if reports_clipped else None,
        "ratios_masked": totals.masked / num_tokens,
        "effective_sample_share": totals.ratio**2 / squares if squares else 0.0,
        "generator_kl": totals.divergence / num_tokens,
    }


def over_all_ranks(
    measured: Sequence[tuple[Sums[Tensor], Tensor]], squares: Tensor
) -> tuple[Sums[float], float, float]:
    """Return the sums over all micro-batches of all ranks, the largest gap, and the sum of
    `squares` over all ranks.

    `measured`: the sums of each micro-batch and its largest gap. Collective; the host waits for the
    device here, and nowhere else in a step.
    """
    sums = torch.stack([torch.stack(list(sums)) for sums, _ in measured]).sum(0)
    totals = torch.cat([sums, squares[None]])
    largest_gap = torch.stack([gap for _, gap in measured]).max()
    dist.all_reduce(totals)
    dist.all_reduce(largest_gap, dist.ReduceOp.MAX)
    *numbers, all_squares, gap = torch.cat([totals, largest_gap[None]]).tolist()
    return Sums(*numbers), gap, all_squares
