"""How long the trainer needs after SIGTERM: the step under way ends,
then a checkpoint is written.
"""

import math
from collections.abc import Iterator

from rollcast.throughput.balance import Balance

CHECKPOINTS_AT_END = 2
"""One may be under way when the signal arrives; the last one begins when it is on the disk."""


def checkpoint_seconds(balance: Balance) -> float:
    """Writing one checkpoint."""
    # Master weight and both moments of AdamW, float32
    num_bytes = 12 * balance.trainer.plan.model.num_parameters
    return num_bytes / balance.trainer.assumptions.checkpoint_bytes_per_second


def grace_seconds(balance: Balance) -> int:
    """Time from SIGTERM to SIGKILL in which the trainer can end in order, rounded up."""
    step = balance.trainer.update_seconds + balance.trainer.sending_seconds
    # Closing of connections, export of compute and exit of the processes. Chosen.
    needed = step + CHECKPOINTS_AT_END * checkpoint_seconds(balance) + 30.0
    # A grace is stated in multiples of this: the prediction is not more exact.
    rounded_seconds = 10
    return rounded_seconds * math.ceil(needed / rounded_seconds)


def short_grace(balance: Balance, grace: float) -> Iterator[str]:
    """One sentence if the grace `grace`, in seconds, is shorter than predicted."""
    needed = grace_seconds(balance)
    if grace >= needed:
        return
    yield (
        f"trainer.terminationGracePeriodSeconds = {grace:g}: a step of "
        f"{balance.trainer.update_seconds:.0f} s and {CHECKPOINTS_AT_END} checkpoints of "
        f"{checkpoint_seconds(balance):.0f} s each may need {needed} s, and what is not written by "
        f"then is computed again; set it to {needed}"
    )
