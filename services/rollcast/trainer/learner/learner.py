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
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from rollcast.config.corrections import NO_CORRECTIONS, Corrections
from rollcast.config.recipe import Optimizer
from rollcast.config.services import AttentionKernel
from rollcast.recipe.learning_rate import learning_rate
from rollcast.recipe.losses.loss import Loss
from rollcast.recipe.regularisation import Estimator
from rollcast.trainer.learner.adapters import adapters_off
from rollcast.trainer.learner.attention import kernel_in_use, preferring
from rollcast.trainer.learner.batch import MicroBatch
from rollcast.trainer.learner.device_batch import DeviceBatch, pack_micro_batch, pad_micro_batch
from rollcast.trainer.learner.loss_tape import LossTape
from rollcast.trainer.learner.model import Policy
from rollcast.trainer.learner.objective import Objective, TokenValues
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.step_sums import (
    Sums,
    UpdateStats,
    batch_figures,
    over_all_ranks,
)
from rollcast.trainer.learner.teacher import HeldTeacher


def score(policy: Policy, batch: DeviceBatch) -> Tensor:
    """Return [T] log pi of the targets, without gradient. Collective."""
    with torch.no_grad():
        logprobs, _ = policy(batch.input_ids, batch.positions, batch.targets, packing=batch.packing)
    for module in policy.modules():  # without a backward pass nothing else frees gathered weights
        if isinstance(module, FSDPModule):
            module.reshard()
    return cast(Tensor, logprobs)


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
        with adapters_off(self.policy):
            return score(self.policy, batch)


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
    tape: LossTape | None = None
    """Keeps what each step's loss was computed from. None costs nothing."""
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
        self.objective = Objective(
            self.loss,
            self.corrections,
            self.entropy_bonus,
            kl_coefficient=0.0 if self.reference is None else self.reference.coefficient,
            kl_estimator="k3" if self.reference is None else self.reference.estimator,
        )
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
        if self.tape is not None:
            self.tape.begin()
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
        gradients = [
            weight.grad.to_local() for weight in self.weights if isinstance(weight.grad, DTensor)
        ]
        totals, largest_gap, squares = over_all_ranks(measured, sum_of_squares(gradients))
        # The gradient was divided by it, so that ranks with other tokens than planned would scale
        # it wrongly.
        assert math.isclose(totals.weight, denominator, rel_tol=1e-4), (totals.weight, denominator)
        grad_norm = self._clip(gradients, squares)
        rate = learning_rate(self.optimizer_settings, self.updates)
        applied = math.isfinite(grad_norm)
        if applied:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
            self.updates += 1
        # After a skipped update too, whose gradients are not finite.
        self.optimizer.zero_grad()
        if self.tape is not None:
            self.tape.end()
        return UpdateStats(
            applied=applied,
            grad_norm=grad_norm,
            learning_rate=rate,
            micro_batches=len(micro_batches),
            seconds=time.perf_counter() - started_at,
            teacher_kl=self.teacher.take_reverse_kl() if self.teacher is not None else None,
            **batch_figures(
                totals,
                largest_gap,
                denominator,
                has_reference=self.reference is not None,
                reports_clipped=self.objective.reports_clipped,
            ),
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
        values = TokenValues(logprobs, entropy, advantages, reference_logprobs)
        num_tokens = sum(sequence.num_tokens for sequence in micro_batch)
        evaluated = self.objective.evaluate(batch, values, num_tokens)
        if self.tape is not None:
            self.tape.note(values)
        # FSDP averages over the ranks, which their number undoes.
        scale = -self.ranks.world_size / denominator
        (evaluated.objective_sum * scale).backward()  # type: ignore[no-untyped-call]
        return evaluated.sums, evaluated.largest_gap

    def _clip(self, gradients: list[Tensor], squares: float) -> float:
        """Scale the gradients to the greatest allowed global norm; return the norm before.

        `squares`: summed over all ranks, since replicas, which have the same gradients, must not
        differ by a rounding.
        """
        squares /= self.ranks.world_size // self.ranks.num_shards
        norm = math.sqrt(squares) if math.isfinite(squares) else math.inf
        if math.isfinite(norm) and norm > self.optimizer_settings.max_grad_norm:
            torch._foreach_mul_(gradients, self.optimizer_settings.max_grad_norm / norm)
        return norm


def sum_of_squares(gradients: list[Tensor]) -> Tensor:
    """On the device, in float64: squares of float32 overflow from 1.8e19 on, which one token of an
    extreme ratio reaches, and a norm that is not finite would cost its whole batch.
    """
    norms = torch._foreach_norm(gradients, dtype=torch.float64)
    return torch.stack(norms).square().sum()
