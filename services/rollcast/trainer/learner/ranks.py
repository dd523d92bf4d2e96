"""The ranks of the learner: one process per device, joined once, with or without torchrun."""

import os
import re
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import HashStore, PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.distributed.rendezvous import rendezvous

from rollcast.config.errors import PassingError, UserError
from rollcast.config.services import Trainer
from rollcast.telemetry.failure_reason import deepest_error
from rollcast.telemetry.gpus import expected_gpus, unusable

_SOURCE_LINE = re.compile(r"^\[[^\]]*\] ?")
"""Line of gloo's source at the begin of its messages."""
_LOST_PEER = re.compile(
    r"gloo.*(closed by peer|reset by peer|Broken pipe|Timed out|timeout|refused)", re.I | re.S
)


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among the learner's processes."""

    rank: int
    world_size: int
    device: torch.device
    mesh: DeviceMesh
    """[world_size]: parameters are sharded over it. [replicas, shards] with `trainer.shard_ranks`:
    each replica is sharded, and consecutive ranks are one replica."""
    store: Store
    """Key-value store on CPU that all ranks reach; it has its own connection, apart from the
    collectives'."""
    lane_store: Store
    """`store` with a connection of its own, for the thread that publishes weights."""

    @property
    def num_shards(self) -> int:
        """Ranks that share one copy of the weights.

        Rank r holds the rows of shard r modulo this number.
        """
        return self.mesh.size(self.mesh.ndim - 1)

    @property
    def has_replicas(self) -> bool:
        """Whether groups of ranks hold a copy each."""
        return self.mesh.ndim > 1

    @property
    def num_devices(self) -> int:
        """Devices of all ranks: GPUs, or CPU cores on a machine without."""
        return self.world_size * (1 if self.device.type == "cuda" else torch.get_num_threads())

    @property
    def are_several_gpus(self) -> bool:
        return self.device.type == "cuda" and self.world_size > 1

    def leave(self) -> None:
        """Give up the process group; no collective may follow."""
        dist.destroy_process_group()


def join_configured_ranks(settings: Trainer) -> Ranks:
    """`join_ranks` with the trainer's settings, on the core that they give this rank."""
    if settings.cpu is not None:
        os.sched_setaffinity(0, {settings.cpu + int(os.environ.get("RANK", "0"))})
    return join_ranks(
        timeout_seconds=settings.collective_timeout_seconds,
        threads=settings.threads,
        shard_ranks=settings.shard_ranks,
    )


def join_ranks(
    *, timeout_seconds: float, threads: int | None = None, shard_ranks: int | None = None
) -> Ranks:
    """Join the ranks that torchrun's environment names; without that environment this process is
    the only rank.

    `timeout_seconds` is the deadline of every collective. `shard_ranks`: as in the trainer's
    settings. A single rank opens no port for its store. Raises UserError if the ranks cannot be
    grouped, or if this process must have GPUs (`telemetry.gpus`) and its own cannot be used.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    # First: a rank without its GPU must not keep the others waiting at the rendezvous.
    device = _own_device(int(os.environ.get("LOCAL_RANK", "0")))
    store: Store
    if "RANK" in os.environ:
        store, rank, world_size = next(
            rendezvous("env://", timeout=timedelta(seconds=timeout_seconds))
        )
    else:
        store = HashStore()
        rank = 0
        world_size = 1
    if shard_ranks is not None and world_size % shard_ranks:
        raise UserError(
            f"trainer.shard_ranks = {shard_ranks}: it does not divide the {world_size} trainer "
            "ranks; set it to the ranks of one machine, or to null"
        )
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        store=PrefixStore("collectives", store),
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_seconds),
    )
    if shard_ranks is None or shard_ranks == world_size:
        mesh = init_device_mesh(device.type, (world_size,), mesh_dim_names=("data",))
    else:
        replicas = (world_size // shard_ranks, shard_ranks)
        mesh = init_device_mesh(device.type, replicas, mesh_dim_names=("replica", "shard"))
        # torch gives the groups of a mesh half an hour.
        for dimension in range(mesh.ndim):
            _set_pg_timeout(timedelta(seconds=timeout_seconds), mesh.get_group(dimension))
    # A connection serialises its callers, and a rank waits in it for its next command.
    commands, lanes = (store if world_size == 1 else store.clone() for _ in range(2))  # type: ignore[attr-defined]
    return Ranks(
        rank,
        world_size,
        device,
        mesh,
        PrefixStore("learner", commands),
        PrefixStore("lanes", lanes),
    )


def lost_rank(error: RuntimeError) -> PassingError | None:
    """The sentence for a collective or a store that failed because another rank is gone; None = it
    is another error.
    """
    if not isinstance(error, dist.DistError) and not _LOST_PEER.search(str(error)):
        return None
    # Characters of torch's message
    error_text = _SOURCE_LINE.sub("", str(error).strip().splitlines()[0]).split(". ")[0][:200]
    return PassingError(
        f"another trainer rank ended or does not answer ({error_text}); see its own log, or its "
        "launcher's"
    )


def _own_device(local_rank: int) -> torch.device:
    """This rank's GPU; a CPU only if it need not have GPUs. Raises UserError."""
    expected = expected_gpus()
    built_for = torch.version.cuda or torch.version.hip
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not num_gpus and not expected:
        return torch.device("cpu")
    if not expected and num_gpus <= local_rank:
        raise UserError(
            f"LOCAL_RANK = {local_rank}: torch finds {num_gpus} GPUs here; start at most as many "
            "ranks"
        )
    if num_gpus < max(expected, local_rank + 1):
        raise unusable(built_for, f"torch finds {num_gpus} of {max(expected, local_rank + 1)}")
    device = torch.device("cuda", local_rank)
    try:
        torch.cuda.set_device(device)
        # The first work on a card shows what counting does not: one that has failed, or that
        # another process keeps.
        torch.zeros(1, device=device)
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        raise unusable(built_for, deepest_error(error)) from error
    return device
