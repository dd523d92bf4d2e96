"""Policy losses: the objective of every token, and its weighted mean (arXiv 2510.13786, sections 2,
3.2 and A.2).

A loss maps the tokens of one micro-batch to terms J_t of the objective to maximise; `objective`
returns (sum_t w_t J_t, sum_t w_t) BEFORE any reduction over micro-batches or ranks. The loss to
minimise is -(all-reduced sum) / (all-reduced denominator). w_t comes from
`rollcast.recipe.aggregation`, once per batch, so a prompt group may be split over micro-batches and
ranks at will, a rollout may not.

Tokens with weight 0 (the forced phrase, padding) have no effect: their log-probabilities, finite or
not, reach neither value nor gradient.

    rho_t  = pi_train(y_t) / pi_gen(y_t)    numerator from the trainer's kernels, denominator from
                                            the generator's
    A_t    = advantage of the token's rollout (`rollcast.recipe.advantages`)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LossInputs:
    """The completion tokens of one micro-batch, flattened; whole rollouts only."""

    logprobs: Tensor
    """[T] log pi_train of the sampled tokens, float32 or float64, with gradient."""
    generator_logprobs: Tensor
    """[T] log pi_gen as recorded while sampling."""
    advantages: Tensor
    """[T] the advantage of each token's rollout."""
    weights: Tensor
    """[T] w_t >= 0; 0 if the token carries no loss."""
    rollout: Tensor
    """[T] int64 index of each token's rollout within the micro-batch, 0 .. number of rollouts -
    1."""


class Loss(Protocol):
    """The objective of each token."""

    def terms(self, inputs: LossInputs) -> Tensor:
        """Return J_t [T], to be maximised; 0 if the weight is 0."""

    def overflowing_tokens(self, inputs: LossInputs) -> Tensor:
        """Return [T] bool, the tokens whose ratio is too large for its type, where `terms` takes a
        bounded one (`rollcast.recipe.ratios`); a loss without such ratios returns `no_token`.
        """


@runtime_checkable
class ClippingLoss(Protocol):
    """A loss that names the tokens that it clips. A function of the user's own does not.

    A token is clipped if its term takes a bound of the recipe in place of its ratio. It then has no
    gradient, except in CISPO, whose ratio is a factor without gradient: the paper says truncated.
    """

    def clipped_tokens(self, inputs: LossInputs) -> tuple[Tensor, Tensor]:
        """Return two [T] bool: the tokens whose term takes the lower bound, and those whose term
        takes the upper one; none if the weight is 0."""


def find_clipped_tokens(loss: Loss, inputs: LossInputs) -> tuple[Tensor, Tensor]:
    """Return two [T] bool, the tokens that the loss clips at the lower and at the upper bound; none
    if the loss does not name them.
    """
    if isinstance(loss, ClippingLoss):
        return loss.clipped_tokens(inputs)
    return no_token(inputs), no_token(inputs)


def objective(loss: Loss, inputs: LossInputs) -> tuple[Tensor, Tensor]:
    """Return the scalars (sum_t w_t J_t, sum_t w_t) of this micro-batch; add them up before
    dividing.
    """
    return (inputs.weights * loss.terms(inputs)).sum(), inputs.weights.sum()


def zero_without_loss(values: Tensor, inputs: LossInputs) -> Tensor:
    """Return `values` [T]; 0, with a gradient of 0, if the weight is 0."""
    return torch.where(
        inputs.weights > 0, values, torch.zeros((), dtype=values.dtype, device=values.device)
    )


def log_ratio(inputs: LossInputs) -> Tensor:
    """Return log rho_t [T]; 0 if the weight is 0."""
    return zero_without_loss(inputs.logprobs - inputs.generator_logprobs, inputs)


def no_token(inputs: LossInputs) -> Tensor:
    return torch.zeros_like(inputs.weights, dtype=torch.bool)
