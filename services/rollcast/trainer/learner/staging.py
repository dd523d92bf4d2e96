"""Sharded master weights -> this rank's rows of a version, in the generators' dtype, in host memory.

No rank sees another's rows: FSDP's shard of a tensor is what the rank's lane sends.
"""

import torch

from rollcast.trainer.learner.model import Policy
from rollcast.weights.plan.manifest import PIECE_BYTES, TensorSpec
from rollcast.weights.plan.snapshot import Snapshot


def weight_specs(policy: Policy, dtype: str) -> tuple[TensorSpec, ...]:
    """The published weights, each under the name the generators know, as `dtype` ("bfloat16")."""
    return tuple(TensorSpec(name, dtype, tuple(weight.shape)) for name, weight in policy.published_weights())


def stage_shard(policy: Policy, snapshot: Snapshot) -> None:
    """Fill `snapshot`, made for this rank's rows. The weights may change as soon as it returns."""
    weights = dict(policy.published_weights())
    with torch.no_grad():
        for name, rows in snapshot.views():
            # Converted on the device, so that half of the bytes cross the bus; in pieces, so that it takes little.
            numbers = PIECE_BYTES // rows.element_size()
            own = weights[name].to_local().view(-1)
            for packed, piece in zip(torch.split(rows.view(-1), numbers), torch.split(own, numbers), strict=True):
                packed.copy_(piece.to(rows.dtype), non_blocking=True)
        if torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()
