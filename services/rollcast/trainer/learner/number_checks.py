"""Numbers that went wrong on a rank: weights that are not finite, and ranks that differ.

With several ranks most weights are there once, in rows, so that a wrong number in a row has no
second copy to differ from. What must be equal is compared: the update's own figures, the rows of
replicas bit by bit, and what each rank computes from the same tokens with all gathered weights.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from rollcast.config.errors import WrongNumbersError
from rollcast.config.record import STEP_BOUNDS
from rollcast.trainer.learner.attention import preferring
from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.learner.device_batch import pack_micro_batch, pad_micro_batch
from rollcast.trainer.learner.learner import Learner, score
from rollcast.trainer.learner.step_sums import UpdateStats
from rollcast.trainer.learner.whole_weights import take_sums

FIGURES = ("number of updates", "learning rate", "gradient norm", "loss")


def sum_of_rows(tensors: Iterable[Tensor]) -> Tensor:
    """On the host: the sum of this rank's numbers, which is finite if all of them are.

    Of the ways to look it is the fastest: one pass, as long as the copy for the generators. Weights
    whose sum overflows in float32 are of no use either.
    """
    rows = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
    sums = [part.sum(dtype=torch.float32) for part in rows if part.is_floating_point()]
    return torch.stack(sums).sum().detach().cpu()


def check_finite(tensors: Iterable[Tensor], what: str, action: str) -> None:
    """Raise WrongNumbersError on every rank if a rank's numbers are not finite. Collective, on the
    host: no broadcast of weights is in its way there.
    """
    total = sum_of_rows(tensors)
    dist.all_reduce(total)
    if not math.isfinite(total.item()):
        raise WrongNumbersError(
            f"{what} are not finite, so they are not {action}; lower "
            "recipe.optimizer.learning_rate or max_grad_norm if it happens again"
        )


def compare_ranks(learner: Learner, stats: UpdateStats) -> None:
    """Raise WrongNumbersError, the same on every rank, if ranks differ after an update.
    Collective.
    """
    ranks = learner.ranks
    figures = [learner.updates, stats.learning_rate, stats.grad_norm, stats.loss]
    named = list(learner.policy.trained_weights()) if ranks.has_replicas else []
    sums = torch.from_numpy(take_sums(named, ranks)[0]()) if named else torch.zeros(0).long()
    logprobs = _same_tokens(learner)
    # One exchange: 64-bit words, those of floats too.
    own = torch.cat([torch.tensor(figures).double().view(torch.int64), sums, logprobs])
    words = [torch.empty_like(own) for _ in range(ranks.world_size)]
    dist.all_gather(words, own)
    table = torch.stack(words)
    everyone = range(ranks.world_size)
    exact = [*FIGURES, *(f"weight {name}" for name, _ in named)]
    for column, part in enumerate(exact):
        # Ranks of one position hold the same rows.
        num_groups = 1 if column < len(FIGURES) else ranks.num_shards
        for first in range(num_groups):
            group = everyone[first::num_groups]
            _raise_for(part, odd_ranks(group, table[:, column].tolist().__getitem__))
    values = table[:, len(exact) :].contiguous().view(torch.float64)
    _raise_for("log-probs of the same tokens", distant_ranks(values))


def distant_ranks(logprobs: Tensor) -> list[int]:
    """The ranks whose log-probs [ranks, tokens] are not those of the others.

    No rank if none has finite ones: then the weights are not finite, which their publication says.
    """
    is_finite = logprobs.isfinite().all(dim=1)
    if not is_finite.any():
        return []
    distances = (logprobs - logprobs[is_finite].quantile(0.5, dim=0)).abs().mean(dim=1)
    # The bound of the alert on two programs' mean gap, which one program with the same weights
    # stays far below, whatever the order of its sums. A comparison with NaN is false.
    return [rank for rank, distance in enumerate(distances) if not distance <= STEP_BOUNDS["gap"]]


def _same_tokens(learner: Learner) -> Tensor:
    """Log-probs of 63 tokens that every rank takes, as 64-bit words on the host."""
    ids = np.arange(64, dtype=np.int32) % learner.policy.vocab_size
    zeros = np.zeros(63, dtype=np.float32)
    sequence = TrainingSequence(ids[:1], ids[1:], zeros, np.ones(63, dtype=np.bool_), 0.0, 0.0)
    make = pack_micro_batch if learner.packing else pad_micro_batch
    with preferring(learner.attention):
        logprobs = score(learner.policy, make((sequence,), learner.ranks.device))
    return logprobs.double().cpu().view(torch.int64)


def odd_ranks(group: Sequence[int], word: Callable[[int], int]) -> list[int]:
    """The ranks whose word is not that of most; all of them if no word is of most."""
    (common, count), *_ = Counter(map(word, group)).most_common(1)
    if 2 * count > len(group):
        return [rank for rank in group if word(rank) != common]
    return list(group)


def _raise_for(part: str, ranks: Sequence[int]) -> None:
    if ranks:
        names = ", ".join(map(str, ranks))
        subject = f"trainer rank {names} differs" if len(ranks) == 1 else f"ranks {names} differ"
        raise WrongNumbersError(
            f"{subject} in the {part}, which must be equal on all; look for a faulty device or its "
            "memory (ECC errors, dmesg) and take its machine out"
        )
