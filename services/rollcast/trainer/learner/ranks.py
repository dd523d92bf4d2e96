"""The ranks of the learner: one process per device, joined once, with or without torchrun."""

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import HashStore, PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.rendezvous import rendezvous

from rollcast.config.errors import UserError


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among the learner's processes."""

    rank: int
    world_size: int
    device: torch.device
    mesh: DeviceMesh
    """[world_size]: parameters are sharded over it. [replicas, shards] with `trainer.shard_ranks`: each replica is
    sharded, and consecutive ranks are one replica."""
    store: Store
    """Key-value store on CPU that all ranks reach; it has its own connection, apart from the collectives'."""
    lane_store: Store
    """`store` with a connection of its own, for the thread that publishes weights."""

    @property
    def num_shards(self) -> int:
        """Ranks that share one copy of the weights. Rank r holds the rows of shard r modulo this number."""
        return self.mesh.size(self.mesh.ndim - 1)

    @property
    def has_replicas(self) -> bool:
        """Whether groups of ranks hold a copy each."""
        return self.mesh.ndim > 1

    @property
    def shard_group(self) -> dist.ProcessGroup:
        """The ranks that share this rank's copy."""
        return self.mesh.get_group(self.mesh.ndim - 1)

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


def join_ranks(*, timeout_seconds: float, threads: int | None = None, shard_ranks: int | None = None) -> Ranks:
    """Join the ranks that torchrun's environment names; without that environment this process is the only rank.

    `timeout_seconds` is the deadline of every collective. `shard_ranks`: as in the trainer's settings. A single rank
    opens no port for its store. Raises UserError if the ranks cannot be grouped.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    store: Store
    if "RANK" in os.environ:
        store, rank, world_size = next(rendezvous("env://", timeout=timedelta(seconds=timeout_seconds)))
    else:
        store = HashStore()
        rank = 0
        world_size = 1
    if shard_ranks is not None and world_size % shard_ranks:
        raise UserError(
            f"trainer.shard_ranks = {shard_ranks}: it does not divide the {world_size} trainer ranks; set it to the "
            "ranks of one machine, or to null"
        )
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    else:
        device = torch.device("cpu")
        backend = "gloo"
    dist.init_process_group(
        backend,
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
    # A connection serialises its callers, and a rank waits in it for its next command.
    commands, lanes = (store if world_size == 1 else store.clone() for _ in range(2))  # type: ignore[attr-defined]
    return Ranks(rank, world_size, device, mesh, PrefixStore("learner", commands), PrefixStore("lanes", lanes))
