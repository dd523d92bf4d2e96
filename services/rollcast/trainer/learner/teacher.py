"""The teacher of a distillation that the trainer's ranks hold: it scores each micro-batch before
the policy does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from rollcast.recipe.distillation import distillation_advantages, token_reverse_kl
from rollcast.trainer.learner.device_batch import DeviceBatch


@dataclass(eq=False)
class HeldTeacher:
    """Every method is collective."""

    logprobs: Callable[[DeviceBatch], Tensor]
    """Returns [T] log pi_teacher of the targets, without gradient."""
    coefficient: float
    _reverse_kls: list[Tensor] = field(default_factory=list)
    """Sums of the micro-batches since the last call of `take_reverse_kl`, left on the device."""
    _num_tokens: int = 0

    def advantages(self, batch: DeviceBatch) -> Tensor:
        """Return the batch's advantages [T] float64 with the teacher's part."""
        generator_logprobs = batch.generator_logprobs.double()
        teacher_logprobs = self.logprobs(batch).double()
        self._reverse_kls.append(token_reverse_kl(generator_logprobs, teacher_logprobs).sum())
        self._num_tokens += len(batch.targets)
        return distillation_advantages(
            batch.advantages, generator_logprobs, teacher_logprobs, self.coefficient
        )

    def take_reverse_kl(self) -> float:
        """Return the mean of log pi_gen - log pi_teacher over the loss tokens of all ranks since
        the last call.
        """
        sums = torch.stack(self._reverse_kls).sum()
        totals = torch.stack([sums, torch.full_like(sums, self._num_tokens)])
        dist.all_reduce(totals)
        self._reverse_kls.clear()
        self._num_tokens = 0
        total, num_tokens = totals.tolist()
        return float(total / num_tokens)
