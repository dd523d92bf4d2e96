"""The memory of a whole run: every rank of the trainer and a generator's worker,
on given devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rollcast.config.run import RunConfig
from rollcast.memory.architecture import ModelShape
from rollcast.memory.device import Device
from rollcast.memory.generator import WorkerMemory
from rollcast.memory.trainer import Parts, RankMemory
from rollcast.memory.weight_shapes import same_layers_together


@dataclass(frozen=True)
class MemoryPlan:
    """`ranks`: trainer ranks. `generators`: generators on this machine, counted if all processes
    share its memory, or one GPU (`shares_gpu`, see `one_gpu`)."""

    model: ModelShape
    config: RunConfig
    device: Device
    ranks: int
    generators: int = 1
    shares_gpu: bool = False
    teacher: ModelShape | None = None
    """The teacher's shape, if the ranks hold one; see `RankMemory`."""

    @cached_property
    def trainer(self) -> tuple[RankMemory, ...]:
        shards = min(self.config.trainer.shard_ranks or self.ranks, self.ranks)
        return tuple(
            RankMemory(
                self.model, self.config, self.device.kind, rank % shards, shards, self.teacher
            )
            for rank in range(self.ranks)
        )

    @cached_property
    def worker(self) -> WorkerMemory:
        return WorkerMemory(self.model, self.config, self.device.kind, self.device.num_bytes)

    @property
    def worker_parts(self) -> Parts:
        worker = self.worker
        return {
            "weights": worker.weights,
            "activations": worker.activations,
            "KV cache": max(0, worker.kv_bytes),
            "staging": worker.staging,
        }

    @property
    def worker_total(self) -> int:
        """vLLM's whole share, used or not, and the staged version."""
        return (
            max(self.worker.taken_by_engine, self.worker.weights + self.worker.activations)
            + self.worker.staging
        )

    @property
    def on_one_machine(self) -> int:
        """Bytes of all processes together, which a machine without GPUs must have."""
        return (
            sum(rank.fullest.total for rank in self.trainer) + self.generators * self.worker_total
        )

    def with_settings(self, *, ranks: int | None = None, **groups: dict[str, Any]) -> MemoryPlan:
        """With other settings: `changed(trainer={"activation_checkpointing": True})`."""
        updates = {
            group: getattr(self.config, group).model_copy(update=settings)
            for group, settings in groups.items()
        }
        return replace(
            self, config=self.config.model_copy(update=updates), ranks=ranks or self.ranks
        )

    def as_json(self) -> dict[str, Any]:
        """Bytes throughout. `weights`: shapes, as a config.json may give them too."""
        worker = self.worker
        device = self.device
        return {
            "parameters": self.model.num_parameters,
            "weights": same_layers_together(self.model),
            "version": self.trainer[0].version,
            "device": {"kind": device.kind, "bytes": device.num_bytes},
            "trainer": [
                {
                    "rank": number,
                    "parts": rank.fullest.parts,
                    "total": rank.fullest.total,
                    "fullest": rank.fullest.name,
                    "moments": {moment.name: moment.total for moment in rank.moments()},
                    "free": device.num_bytes - rank.fullest.total,
                    "start_on_host": rank.start_on_host,
                    "tokens": rank.load.tokens,
                }
                for number, rank in enumerate(self.trainer)
            ],
            "generator": {
                "workers": worker.workers,
                "parts": self.worker_parts,
                "total": self.worker_total,
                "free": device.num_bytes - self.worker_total,
                "kv_bytes_of_a_slot": worker.kv_of_slot(self.config.model.max_length),
                "tokens_per_slot": worker.tokens_per_slot,
                "slots": worker.slots,
                "slots_that_fit": worker.slots_that_fit,
            },
        }
