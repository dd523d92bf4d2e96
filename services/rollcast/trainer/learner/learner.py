"""One optimizer step on one batch: forward, loss, backward, clip, AdamW.

The objective of the batch is J = sum_t w_t J_t / D with D = sum_t w_t over all micro-batches of all
ranks, and J_t the loss's term with what regularises it (`rollcast.recipe.regularisation`). D is
known before the first forward pass, so each micro-batch contributes -sum_t w_t J_t / D to the
gradient; FSDP averages over the W ranks, which the factor W undoes. The gradient therefore depends
neither on W nor on the cut into micro-batches.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from rollcast.config.corrections import NO_CORRECTIONS, Corrections
from rollcast.config.recipe import Optimizer
from rollcast.config.services import AttentionKernel
from rollcast.recipe.corrections import correct
from rollcast.recipe.learning_rate import learning_rate
from rollcast.recipe.losses.loss import (
    ClippingLoss,
    Loss,
    LossInputs,
    find_clipped_tokens,
    objective,
)
from rollcast.recipe.ratios import ratio_sums
from rollcast.recipe.regularisation import Estimator, kl_terms, overflowing_kl_tokens
from rollcast.trainer.learner.adapters import adapters_off
from rollcast.trainer.learner.attention import kernel_in_use, preferring
from rollcast.trainer.learner.batch import MicroBatch
from rollcast.trainer.learner.device_batch import DeviceBatch, pack_micro_batch, pad_micro_batch
from rollcast.trainer.learner.model import Policy
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.step_sums import (
    Sums,
    UpdateStats,
    over_all_ranks,
    ratio_shares,
)
from rollcast.trainer.learner.teacher import HeldTeacher


@dataclass(eq=False)
class Reference:
    """The reference policy of a KL penalty: frozen, in the model's dtype, sharded like the trained
    policy.

    With LoRA it is the trained policy itself with its adapters off. Nothing of it is saved or
    published: a resumed run reads it from its folder again.
    """

    policy: Policy
    coefficient: float
    """Coefficient of the KL penalty in the objective."""
    estimator: Estimator = "k3"
    """Which estimate is reported."""

    def logprobs(self, batch: DeviceBatch) -> Tensor:
        """Return [T] log pi_ref of the targets, without gradient. Collective."""
        with torch.no_grad(), adapters_off(self.policy):
            logprobs, _ = self.policy(
                batch.input_ids, batch.positions, batch.targets, packing=batch.packing
            )
        for module in (
            self.policy.modules()
        ):  # without a backward pass nothing else frees the gathered weights
            if isinstance(module, FSDPModule):
                module.reshard()
        return cast(Tensor, logprobs)


@dataclass(eq=False)
class Learner:
    """Holds the sharded policy and its optimizer on one rank. Every method is collective."""

    policy: Policy
    _: KW_ONLY
    optimizer_settings: Optimizer
    loss: Loss
    ranks: Ranks
    reference: Reference | None = None
    """The policy that a KL penalty pulls towards. None costs nothing."""
    teacher: HeldTeacher | None = None
    """The teacher whose log-probs are part of the advantages. None costs nothing."""
    entropy_bonus: float = 0.0
    """Coefficient of the entropy in the objective. 0.0 costs nothing."""
    corrections: Corrections = NO_CORRECTIONS
    attention: AttentionKernel = "auto"
    packing: bool = False
    """Whether the policies were read for packed sequences."""
    updates: int = field(default=0, init=False)
    """Optimizer steps made: the position in the warm-up."""

    def __post_init__(self) -> None:
        policy = self.policy
        self.attention_kernel = kernel_in_use(
            policy.causal_lm.config,
            dtype=policy.dtype,
            device=self.ranks.device,
            preferred=self.attention,
        )
        """Name of the kernel that computes attention."""
        self.weights = [weight for _, weight in policy.trained_weights()]
        settings = self.optimizer_settings
        self.optimizer = torch.optim.AdamW(
            self.weights,
            lr=settings.learning_rate,
            betas=settings.betas,
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def update(
        self,
        micro_batches: Sequence[MicroBatch],
        denominator: float,
        between: Callable[[], None] = lambda: None,
    ) -> UpdateStats:
        """Make one optimizer step.

        `micro_batches`: this rank's, as many as every other rank has. `denominator`: D, of the
        whole batch. `between` is called after each micro-batch, outside any collective.
        """
        started_at = time.perf_counter()
        measured = []
        with preferring(self.attention):
            for index, micro_batch in enumerate(micro_batches):
                if self.ranks.has_replicas:
                    # Each replica adds its gradients up by itself first: one reduction over
                    # machines a step.
                    cast(FSDPModule, self.policy).set_requires_all_reduce(
                        index == len(micro_batches) - 1
                    )
                measured.append(self._add_gradient(micro_batch, denominator))
                between()
        totals, largest_gap = over_all_ranks(measured)
        # The gradient was divided by it, so that ranks with other tokens than planned would scale
        # it wrongly.
        assert math.isclose(totals.weight, denominator, rel_tol=1e-4), (totals.weight, denominator)
        grad_norm = self._clip()
        rate = learning_rate(self.optimizer_settings, self.updates)
        applied = math.isfinite(grad_norm)
        if applied:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
            self.updates += 1
        # After a skipped update too, whose gradients are not finite.
        self.optimizer.zero_grad()
        return UpdateStats(
            applied=applied,
            loss=-totals.objective / denominator,
            grad_norm=grad_norm,
            learning_rate=rate,
            logprob_gap_mean=totals.logprob_gap / totals.loss_tokens,
            logprob_gap_max=largest_gap,
            entropy=totals.entropy / totals.loss_tokens,
            loss_tokens=int(totals.loss_tokens),
            tokens=int(totals.tokens),
            micro_batches=len(micro_batches),
            seconds=time.perf_counter() - started_at,
            kl=totals.kl / denominator if self.reference is not None else None,
            clamped_ratios=int(totals.clamped_ratios),
            teacher_kl=self.teacher.take_reverse_kl() if self.teacher is not None else None,
            **ratio_shares(totals, reports_clipped=isinstance(self.loss, ClippingLoss)),
        )

    def _add_gradient(
        self, micro_batch: MicroBatch, denominator: float
    ) -> tuple[Sums[Tensor], Tensor]:
        """Return the sums of the micro-batch and its largest gap, 0 without loss tokens."""
        make = pack_micro_batch if self.packing else pad_micro_batch
        batch = make(micro_batch, self.ranks.device)
        reference_logprobs = self.reference.logprobs(batch) if self.reference is not None else None
        advantages = batch.advantages if self.teacher is None else self.teacher.advantages(batch)
        logprobs, entropy = self.policy(
            batch.input_ids, batch.positions, batch.targets, batch.routed_experts, batch.packing
        )
        inputs = LossInputs(
            logprobs=logprobs,
            generator_logprobs=batch.generator_logprobs.to(logprobs.dtype),
            advantages=advantages.to(logprobs.dtype),
            weights=batch.weights.to(logprobs.dtype),
            rollout=batch.rollout,
        )
        corrected = correct(self.corrections, inputs)
        objective_sum, kl = self._objective(
            corrected.inputs, inputs.weights, batch, entropy, reference_logprobs
        )
        # Before the backward pass: a loss that counts rollouts makes the host wait for all queued
        # work.
        low, high = find_clipped_tokens(self.loss, corrected.inputs)
        overflowing = self._find_overflowing_tokens(
            corrected.inputs, inputs.weights, reference_logprobs
        )
        # FSDP averages over the ranks, which their number undoes.
        (objective_sum * (-self.ranks.world_size / denominator)).backward()  # type: ignore[no-untyped-call]
        gaps = (logprobs.detach() - inputs.generator_logprobs).double()
        sums = Sums(
            objective=objective_sum.detach().double(),
            weight=inputs.weights.sum().double(),
            kl=kl.detach().double(),
            logprob_gap=gaps.abs().sum(),
            entropy=entropy.detach().sum().double(),
            **ratio_sums(gaps)._asdict(),
            clamped_ratios=overflowing.sum().double(),
            clipped_low=low.sum().double(),
            clipped_high=(high | corrected.truncated).sum().double(),
            masked=corrected.masked.sum().double(),
            loss_tokens=gaps.new_full((), len(batch.targets)),
            tokens=gaps.new_full((), sum(sequence.num_tokens for sequence in micro_batch)),
        )
        return sums, gaps.abs().max() if gaps.numel() else gaps.new_zeros(())

    def _objective(
        self,
        inputs: LossInputs,
        weights: Tensor,
        batch: DeviceBatch,
        entropy: Tensor,
        reference_logprobs: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return sum_t w_t J_t with what regularises it, and the weighted KL.

        `weights` [T]: before corrections.
        """
        objective_sum = objective(self.loss, inputs)[0]
        kl = torch.zeros_like(objective_sum)
        if self.reference is not None and reference_logprobs is not None:
            terms = kl_terms(
                inputs.logprobs,
                inputs.generator_logprobs,
                reference_logprobs,
                weights,
                estimator=self.reference.estimator,
            )
            kl = (weights * terms).sum()
            penalty = (weights * batch.kl_factors.to(weights.dtype) * terms).sum()
            objective_sum = objective_sum - self.reference.coefficient * penalty
        if self.entropy_bonus:
            # sum_t w_t H_t, with each prompt's factor
            bonus = (weights * batch.entropy_factors.to(weights.dtype) * entropy).sum()
            objective_sum = objective_sum + self.entropy_bonus * bonus
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

    def _clip(self) -> float:
        """Scale the gradients to the greatest allowed global norm; return the norm before.

        In float64: squares of float32 overflow from 1.8e19 on, which one token of an extreme ratio
        reaches, and a norm that is not finite would cost its whole batch.
        """
        gradients = [
            weight.grad.to_local() for weight in self.weights if isinstance(weight.grad, DTensor)
        ]
        norms = torch._foreach_norm(gradients, dtype=torch.float64)
        squares = torch.stack(norms).square().sum()
        # Over all ranks, since replicas must not differ by a rounding; each has the same gradients.
        dist.all_reduce(squares)
        squares /= self.ranks.world_size // self.ranks.num_shards
        norm = math.sqrt(squares.item()) if squares.isfinite() else math.inf
        if math.isfinite(norm) and norm > self.optimizer_settings.max_grad_norm:
            torch._foreach_mul_(gradients, self.optimizer_settings.max_grad_norm / norm)
        return norm
