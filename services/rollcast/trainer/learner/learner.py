"""One optimizer step on one batch: forward, loss, backward, clip, AdamW.

The objective of the batch is J = sum_t w_t J_t / D with D = sum_t w_t over all micro-batches of all ranks, and J_t the
loss's term with what regularises it (`rollcast.recipe.regularisation`). D is known before the first forward pass, so
each micro-batch contributes -sum_t w_t J_t / D to the gradient; FSDP averages over the W ranks, which the factor W
undoes. The gradient therefore depends neither on W nor on the cut into micro-batches.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from rollcast.config.recipe import Optimizer
from rollcast.config.services import AttentionKernel
from rollcast.recipe.learning_rate import learning_rate
from rollcast.recipe.losses import Loss, LossInputs, objective
from rollcast.recipe.regularisation import clamped_kl, weighted_entropy, weighted_kl
from rollcast.trainer.learner.attention import kernel_in_use, preferring
from rollcast.trainer.learner.batch import MicroBatch
from rollcast.trainer.learner.device_batch import DeviceBatch, pack_micro_batch, pad_micro_batch
from rollcast.trainer.learner.model import Policy
from rollcast.trainer.learner.ranks import Ranks


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """Results of one update; means are over the loss tokens of the batch."""

    applied: bool
    """False: the gradient was not finite, so the weights and the optimizer were left as they were."""
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
    """Nats per token to the reference policy (k3), weighted like the loss. None: the recipe has no KL penalty."""
    clamped_ratios: int = 0
    """Loss tokens at which a ratio of the objective overflowed and was clamped (`rollcast.recipe.ratios`)."""


@dataclass(frozen=True, slots=True)
class MicroBatchSums:
    """Sums over the loss tokens of one micro-batch. Tensors are float64 scalars, left on the device: reading one here
    would make the host wait for the pass."""

    objective: Tensor
    weight: Tensor
    kl: Tensor
    logprob_gap: Tensor
    entropy: Tensor
    clamped_ratios: Tensor
    largest_gap: Tensor
    """0 without loss tokens."""
    loss_tokens: int
    tokens: int


class Reference:
    """The reference policy of a KL penalty: frozen, in the model's dtype, sharded like the trained policy.

    Nothing of it is saved or published: a resumed run reads it from its folder again.
    """

    def __init__(self, policy: Policy, coefficient: float) -> None:
        self.policy = policy
        self.coefficient = coefficient
        """Coefficient of the KL penalty in the objective."""

    def logprobs(self, batch: DeviceBatch) -> Tensor:
        """Return [T] log pi_ref of the targets, without gradient. Collective."""
        with torch.no_grad():
            logprobs, _ = self.policy(batch.input_ids, batch.positions, batch.targets, packing=batch.packing)
        for module in self.policy.modules():  # without a backward pass nothing else frees the gathered weights
            if isinstance(module, FSDPModule):
                module.reshard()
        return cast(Tensor, logprobs)


class Learner:
    """Holds the sharded policy and its optimizer on one rank. Every method is collective."""

    def __init__(
        self,
        policy: Policy,
        *,
        settings: Optimizer,
        loss: Loss,
        ranks: Ranks,
        reference: Reference | None = None,
        entropy_bonus: float = 0.0,
        attention: AttentionKernel = "auto",
        packing: bool = False,
    ) -> None:
        """`reference`: the policy that a KL penalty pulls towards; None and 0.0 cost nothing. `packing`: the policies
        were read for packed sequences."""
        self.policy = policy
        self.settings = settings
        self.loss = loss
        self.ranks = ranks
        self.reference = reference
        self.entropy_bonus = entropy_bonus
        self.attention = attention
        self.packing = packing
        self.attention_kernel = kernel_in_use(
            policy.causal_lm.config, dtype=policy.dtype, device=ranks.device, preferred=attention
        )
        """Name of the kernel that computes attention."""
        self.updates = 0
        """Optimizer steps made: the position in the warm-up."""
        self.weights = [weight for _, weight in policy.named_weights()]
        self.optimizer = torch.optim.AdamW(
            self.weights,
            lr=settings.learning_rate,
            betas=settings.betas,
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def update(
        self, micro_batches: Sequence[MicroBatch], denominator: float, between: Callable[[], None] = lambda: None
    ) -> UpdateStats:
        """Make one optimizer step.

        `micro_batches`: this rank's, as many as every other rank has. `denominator`: D, of the whole batch. `between`
        is called after each micro-batch, outside any collective.
        """
        started = time.perf_counter()
        sums = []
        with preferring(self.attention):
            for index, micro_batch in enumerate(micro_batches):
                if self.ranks.has_replicas:
                    # Each replica adds its gradients up by itself first: one reduction over machines a step.
                    cast(FSDPModule, self.policy).set_requires_all_reduce(index == len(micro_batches) - 1)
                sums.append(self._add_gradient(micro_batch, denominator))
                between()
        totals, largest_gap = self._over_all_ranks(sums)
        grad_norm = self._clip()
        rate = learning_rate(self.settings, self.updates)
        applied = math.isfinite(grad_norm)
        if applied:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
            self.updates += 1
        self.optimizer.zero_grad()
        objective, weight, kl, gap, entropy, num_clamped, loss_tokens, tokens = totals.tolist()
        assert math.isclose(weight, denominator, rel_tol=1e-4), (weight, denominator)
        return UpdateStats(
            applied=applied,
            loss=-objective / denominator,
            grad_norm=grad_norm,
            learning_rate=rate,
            logprob_gap_mean=gap / loss_tokens,
            logprob_gap_max=largest_gap.item(),
            entropy=entropy / loss_tokens,
            loss_tokens=int(loss_tokens),
            tokens=int(tokens),
            micro_batches=len(micro_batches),
            seconds=time.perf_counter() - started,
            kl=kl / denominator if self.reference is not None else None,
            clamped_ratios=int(num_clamped),
        )

    def _over_all_ranks(self, sums: Sequence[MicroBatchSums]) -> tuple[Tensor, Tensor]:
        """Return the totals [8], in the order of the fields without `largest_gap`, and the largest gap. Collective."""
        totals = torch.zeros(8, dtype=torch.float64, device=self.ranks.device)
        for one in sums:
            measured = [one.objective, one.weight, one.kl, one.logprob_gap, one.entropy, one.clamped_ratios]
            totals[:6] += torch.stack(measured)
        totals[6] = sum(one.loss_tokens for one in sums)
        totals[7] = sum(one.tokens for one in sums)
        largest_gap = torch.stack([one.largest_gap for one in sums]).max()
        dist.all_reduce(totals)
        dist.all_reduce(largest_gap, dist.ReduceOp.MAX)
        return totals, largest_gap

    def _add_gradient(self, micro_batch: MicroBatch, denominator: float) -> MicroBatchSums:
        make = pack_micro_batch if self.packing else pad_micro_batch
        batch = make(micro_batch, self.ranks.device)
        reference_logprobs = self.reference.logprobs(batch) if self.reference is not None else None
        logprobs, entropy = self.policy(
            batch.input_ids, batch.positions, batch.targets, batch.routed_experts, batch.packing
        )
        inputs = LossInputs(
            logprobs=logprobs,
            generator_logprobs=batch.generator_logprobs.to(logprobs.dtype),
            advantages=batch.advantages.to(logprobs.dtype),
            weights=batch.weights.to(logprobs.dtype),
            rollout=batch.rollout,
        )
        total, weight = objective(self.loss, inputs)
        with torch.no_grad():  # counted, not differentiated
            is_clamped = self.loss.clamped(inputs)
        kl = torch.zeros_like(weight)
        if self.reference is not None and reference_logprobs is not None:
            kl = weighted_kl(logprobs, reference_logprobs, inputs.weights)
            total = total - self.reference.coefficient * kl
            is_clamped = is_clamped | clamped_kl(logprobs, reference_logprobs, inputs.weights)
        if self.entropy_bonus:
            total = total + self.entropy_bonus * weighted_entropy(entropy, inputs.weights)
        (total * (-self.ranks.world_size / denominator)).backward()  # type: ignore[no-untyped-call]
        gaps = (logprobs.detach() - inputs.generator_logprobs).abs().double()
        return MicroBatchSums(
            objective=total.detach().double(),
            weight=weight.detach().double(),
            kl=kl.detach().double(),
            logprob_gap=gaps.sum(),
            entropy=entropy.detach().sum().double(),
            clamped_ratios=is_clamped.sum().double(),
            largest_gap=gaps.max() if gaps.numel() else gaps.new_zeros(()),
            loss_tokens=len(batch.targets),
            tokens=sum(sequence.num_tokens for sequence in micro_batch),
        )

    def _clip(self) -> float:
        """Scale the gradients to the greatest allowed global norm; return the norm before.

        In float64: squares of float32 overflow from 1.8e19 on, which one token of an extreme ratio reaches, and a norm
        that is not finite would cost its whole batch.
        """
        gradients = [weight.grad.to_local() for weight in self.weights if isinstance(weight.grad, DTensor)]
        norms = torch._foreach_norm(gradients, dtype=torch.float64)
        squares = torch.stack(norms).square().sum()
        # Over all ranks, since replicas must not differ by a rounding; each has the same gradients.
        dist.all_reduce(squares)
        squares /= self.ranks.world_size // self.ranks.num_shards
        norm = math.sqrt(squares.item()) if squares.isfinite() else math.inf
        if math.isfinite(norm) and norm > self.settings.max_grad_norm:
            torch._foreach_mul_(gradients, self.settings.max_grad_norm / norm)
        return norm
