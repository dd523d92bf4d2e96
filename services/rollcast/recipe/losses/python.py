"""A loss that is a function of the user's own: `LossInputs` -> J_t [T], to be maximised."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from rollcast.config.losses.python import CustomLoss
from rollcast.recipe.custom_functions import LOSS, CustomFunctionCaller
from rollcast.recipe.losses.loss import LossInputs, no_token, zero_without_loss


@dataclass(frozen=True, slots=True)
class PythonLoss:
    function: CustomFunctionCaller

    def terms(self, inputs: LossInputs) -> Tensor:
        if (
            inputs.logprobs.numel() == 0
        ):  # of a rank without rollouts: means and maxima have no value there
            return inputs.logprobs * 0
        inputs_copy = _copy(inputs)
        if inputs_copy.logprobs.requires_grad:
            inputs_copy.logprobs.register_hook(self._check_gradient)  # type: ignore[no-untyped-call]
        terms = self.function.call(inputs_copy)
        size = list(inputs.logprobs.shape)
        if not isinstance(terms, Tensor) or list(terms.shape) != size:
            result_description = (
                f"a tensor {list(terms.shape)}" if isinstance(terms, Tensor) else terms
            )
            raise self.function.make_result_error(
                result_description, f"a tensor {size}, one term for each token"
            )
        if not _is_finite(terms, inputs):
            raise self.function.make_result_error(
                "terms that are not finite", "finite ones for tokens with finite log-probs"
            )
        if torch.is_grad_enabled() and inputs.logprobs.requires_grad and not terms.requires_grad:
            raise self.function.make_result_error(
                "terms without gradient", "terms computed from inputs.logprobs"
            )
        return zero_without_loss(terms, inputs)

    def _check_gradient(self, gradient: Tensor) -> None:
        """Terms may be finite and their gradient not, such as that of sqrt at 0."""
        if not gradient.isfinite().all():
            raise self.function.make_result_error(
                "terms whose gradient is not finite", "finite gradients at inputs.logprobs"
            )

    def overflowing_tokens(self, inputs: LossInputs) -> Tensor:
        """Return no token: what the function does with large ratios is not known here."""
        return no_token(inputs)


def _is_finite(terms: Tensor, inputs: LossInputs) -> bool:
    """Whether the terms are finite for each token that carries loss and has a finite log-prob."""
    counts = (inputs.weights > 0) & inputs.logprobs.isfinite()
    return bool(torch.where(counts, terms, 0.0).isfinite().all())


def _copy(inputs: LossInputs) -> LossInputs:
    """Return the same values in memory of their own, which the function may change in place."""
    return LossInputs(
        **{field.name: getattr(inputs, field.name).clone() for field in fields(inputs)}
    )


def make(settings: CustomLoss) -> PythonLoss:
    return PythonLoss(CustomFunctionCaller(LOSS, settings))
