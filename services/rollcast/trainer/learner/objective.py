"""The objective of a micro-batch's tokens with all that regularises it, and its measurements.

A function of a forward pass's results alone, so that a recorded step is computed again from its
recorded log-probs (`rollcast.trainer.replay`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rollcast.config.corrections import Corrections
from rollcast.recipe.corrections import correct
from rollcast.recipe.losses.loss import (
    ClippingLoss,
    Loss,
    LossInputs,
    find_clipped_tokens,
    objective,
)
from rollcast.recipe.ratios import ratio_sums
from rollcast.recipe.regularisation import Estimator, kl_terms, overflowing_kl_tokens
from rollcast.trainer.learner.device_batch import DeviceBatch
from rollcast.trainer.learner.step_sums import Sums


class TokenValues(NamedTuple):
    """Results of the forward passes at the T loss tokens of a micro-batch."""

    logprobs: Tensor
    """[T] with gradient."""
    entropy: Tensor
    """[T]"""
    advantages: Tensor
    """[T] with the part of a teacher that the ranks hold."""
    reference_logprobs: Tensor | None
    """[T]. None without a KL penalty."""


class Evaluated(NamedTuple):
    """The objective of a micro-batch."""

    objective_sum: Tensor
    """sum_t w_t J_t, regularisation included, with gradient."""
    sums: Sums[Tensor]
    largest_gap: Tensor
    """0 without loss tokens."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective of a recipe."""

    loss: Loss
    corrections: Corrections
    entropy_bonus: float
    kl_coefficient: float
    """Counts if log-probs of a reference policy are given."""
    kl_estimator: Estimator

    @property
    def reports_clipped(self) -> bool:
        """Whether the loss names the tokens that it clips."""
        return isinstance(self.loss, ClippingLoss)

    def evaluate(self, batch: DeviceBatch, values: TokenValues, num_tokens: int) -> Evaluated:
        """`num_tokens`: of prompts and completions."""
        logprobs = values.logprobs
        inputs = LossInputs(
            logprobs=logprobs,
            generator_logprobs=batch.generator_logprobs.to(logprobs.dtype),
            advantages=values.advantages.to(logprobs.dtype),
            weights=batch.weights.to(logprobs.dtype),
            rollout=batch.rollout,
        )
        corrected = correct(self.corrections, inputs)
        objective_sum, kl = self._sum(corrected.inputs, inputs.weights, batch, values)
        # Before the backward pass: a loss that counts rollouts makes the host wait for all queued
        # work.
        low, high = find_clipped_tokens(self.loss, corrected.inputs)
        overflowing = self._find_overflowing_tokens(
            corrected.inputs, inputs.weights, values.reference_logprobs
        )
        gaps = (logprobs.detach() - inputs.generator_logprobs).double()
        sums = Sums(
            objective=objective_sum.detach().double(),
            weight=inputs.weights.sum().double(),
            kl=kl.detach().double(),
            logprob_gap=gaps.abs().sum(),
            entropy=values.entropy.detach().sum().double(),
            **ratio_sums(gaps)._asdict(),
            clamped_ratios=overflowing.sum().double(),
            clipped_low=low.sum().double(),
            clipped_high=(high | corrected.truncated).sum().double(),
            masked=corrected.masked.sum().double(),
            loss_tokens=gaps.new_full((), len(batch.targets)),
            tokens=gaps.new_full((), num_tokens),
        )
        largest_gap = gaps.abs().max() if gaps.numel() else gaps.new_zeros(())
        return Evaluated(objective_sum, sums, largest_gap)

    def _sum(
        self, inputs: LossInputs, weights: Tensor, batch: DeviceBatch, values: TokenValues
    ) -> tuple[Tensor, Tensor]:
        """Return sum_t w_t J_t with what regularises it, and the weighted KL.

        `weights` [T]: before corrections.
        """
        objective_sum = objective(self.loss, inputs)[0]
        kl = torch.zeros_like(objective_sum)
        if values.reference_logprobs is not None:
            terms = kl_terms(
                inputs.logprobs,
                inputs.generator_logprobs,
                values.reference_logprobs,
                weights,
                estimator=self.kl_estimator,
            )
            kl = (weights * terms).sum()
            penalty = (weights * batch.kl_factors.to(weights.dtype) * terms).sum()
            objective_sum = objective_sum - self.kl_coefficient * penalty
        if self.entropy_bonus:
            # sum_t w_t H_t, with each prompt's factor
            factors = batch.entropy_factors.to(weights.dtype)
            objective_sum = objective_sum + self.entropy_bonus * (
                (weights * factors * values.entropy).sum()
            )
        return objective_sum, kl

    @torch.no_grad()
    def _find_overflowing_tokens(
        self, inputs: LossInputs, weights: Tensor, reference_logprobs: Tensor | None
    ) -> Tensor:
        """Return [T] bool, the tokens at which a ratio of the objective overflows: counted, not
        differentiated.
        """
        overflowing = self.loss.overflowing_tokens(inputs)
        if reference_logprobs is None:
            return overflowing
        return overflowing | overflowing_kl_tokens(
            inputs.logprobs, inputs.generator_logprobs, reference_logprobs, weights
        )
