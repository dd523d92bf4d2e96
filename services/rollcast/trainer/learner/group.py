"""The learner's ranks as one object.

    rank 0     build -> restore? -> ( update | gather | save | export )* -> stop
    others     build -> follow, which does its part of each of these until stop; asked to stop, it tells rank 0

Every call at rank 0 first sends a command, then takes part in the same collectives as the others; calls come from one
thread. Between calls nobody waits inside a collective.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed import DistNetworkError

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.recipe.learning_rate import scaled_to_batch
from rollcast.recipe.losses import make_loss
from rollcast.runfolder.files import CHECKPOINTS
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.batch import (
    TrainingSequence,
    decode_micro_batches,
    denominator,
    encode_micro_batches,
    plan_micro_batches,
)
from rollcast.trainer.learner.checkpoint import load_checkpoint, save_checkpoint
from rollcast.trainer.learner.commands import CommandKind, CommandReceiver, CommandSender, RankCommand
from rollcast.trainer.learner.export import export_weights
from rollcast.trainer.learner.gather import gather_weights, weight_specs
from rollcast.trainer.learner.learner import Learner, UpdateStats
from rollcast.trainer.learner.model import read_causal_lm, shard_policy
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.reference import read_reference
from rollcast.weights.manifest import TensorSpec, plan_buckets
from rollcast.weights.snapshot import Snapshot
from rollcast.wire.version import PolicyVersion

HEAR_SECONDS = 10.0
"""For the other ranks to hear how the run ended: the store goes with rank 0's process."""
log = get_logger()


class LearnerGroup:
    """All ranks of the learner, seen from one of them."""

    def __init__(self, config: RunConfig, learner: Learner) -> None:
        self.config = config
        self.learner = learner
        self.ranks = learner.ranks
        self.specs: tuple[TensorSpec, ...] = weight_specs(learner.policy, config.model.dtype)
        """What is published, in order, in the generators' dtype."""
        self.buckets = plan_buckets(self.specs, config.weights.bucket_bytes)
        self.sender = CommandSender(self.ranks.store, self.ranks.world_size)

    @classmethod
    def build(cls, config: RunConfig, ranks: Ranks) -> LearnerGroup:
        """Read, shard and wrap the model on this rank. Raises UserError if it cannot be read."""
        recipe = config.recipe
        policy = shard_policy(
            read_causal_lm(config.model),
            mesh=ranks.mesh,
            dtype=getattr(torch, config.model.dtype),
            lm_head=recipe.lm_head,
            temperature=recipe.temperature,
            logits_chunk_tokens=config.trainer.logits_chunk_tokens,
            activation_checkpointing=config.trainer.activation_checkpointing,
        )
        learner = Learner(
            policy,
            settings=scaled_to_batch(recipe),
            loss=make_loss(recipe.loss),
            ranks=ranks,
            reference=read_reference(recipe.kl, config, ranks, vocab_size=policy.vocab_size) if recipe.kl else None,
            entropy_bonus=recipe.entropy_bonus,
        )
        return cls(config, learner)

    @property
    def vocab_size(self) -> int:
        """Token ids at or above it must not reach `update`."""
        return self.learner.policy.vocab_size

    @property
    def updates(self) -> int:
        """Optimizer steps made in the surviving history."""
        return self.learner.updates

    def update(self, sequences: Sequence[TrainingSequence], between: Callable[[], None] = lambda: None) -> UpdateStats:
        """Make one optimizer step on the kept rollouts of a batch; at least one must carry loss.

        `between` is called here, on rank 0, after each of its micro-batches.
        """
        total = denominator(sequences)
        assert total > 0, "a batch without loss tokens makes no update"
        ranks = plan_micro_batches(
            sequences, world_size=self.ranks.world_size, max_tokens=self.config.trainer.tokens_per_micro_batch
        )
        bodies: Mapping[int, bytes] = {
            rank: encode_micro_batches(ranks[rank], total) for rank in range(1, self.ranks.world_size)
        }
        self.sender.send(CommandKind.UPDATE, bodies)
        return self.learner.update(ranks[0], total, between)

    def gather(self, snapshot: Snapshot) -> None:
        """Fill `snapshot` (made for `buckets`) with the current weights."""
        self.sender.send(CommandKind.GATHER)
        self._gather(snapshot)

    def save(self, version: PolicyVersion, controller: dict[str, Any]) -> Path:
        """Write a checkpoint with the controller's state (JSON). Raises UserError if the disk is full."""
        self.sender.send(CommandKind.SAVE, str(version).encode())
        return self._save(version, controller)

    def restore(self, checkpoint: Path) -> dict[str, Any]:
        """Continue from a checkpoint; return the controller's state. Raises UserError if it does not fit."""
        self.sender.send(CommandKind.RESTORE, str(checkpoint).encode())
        return load_checkpoint(checkpoint, self.learner)

    def export(self, folder: Path) -> None:
        """Write the weights as a Hugging Face folder. Raises UserError if that fails."""
        self.sender.send(CommandKind.GATHER)
        snapshot = Snapshot(self.buckets, torch.device("cpu"))
        self._gather(snapshot)
        export_weights(snapshot, self.config.model, folder)

    def stop(self, ending: TrainerEnding) -> None:
        """Let the other ranks return `ending` from `follow`.

        Waits until they have heard it; where the run failed they may hang in a collective, and end without.
        """
        self.sender.send(CommandKind.STOP, ending.encode())
        if ending is not TrainerEnding.FAILED and not self.sender.wait_received(HEAR_SECONDS):
            log.warning("not every rank heard how the run ended", ending=str(ending))

    def stop_asked(self) -> bool:
        """At rank 0: whether another rank was asked to stop. May be called by any thread."""
        return self.sender.stop_asked()

    def follow(self, stop_requested: Callable[[], bool] = lambda: False) -> TrainerEnding:
        """Ranks above 0: do what rank 0 says until it says stop; returns how the run ended.

        Where `stop_requested` turns true rank 0 is told, which ends all ranks in order.
        """
        receiver = CommandReceiver(self.ranks.store, self.ranks.rank)

        def pass_on() -> None:
            if stop_requested():
                receiver.ask_to_stop()

        try:
            while (command := receiver.receive(pass_on)).kind is not CommandKind.STOP:
                try:
                    self._obey(command)
                except UserError:
                    # Every rank raises it together; rank 0 tells the user and decides what comes next.
                    continue
        except DistNetworkError as error:
            log.error("rank 0 is gone", error=" ".join(str(error).split())[:200])
            return TrainerEnding.FAILED
        return TrainerEnding(command.body.decode())

    def _obey(self, command: RankCommand) -> None:
        if command.kind is CommandKind.UPDATE:
            self.learner.update(*decode_micro_batches(command.body))
        elif command.kind is CommandKind.GATHER:
            self._gather(None)
        elif command.kind is CommandKind.SAVE:
            self._save(PolicyVersion.parse(command.body.decode()), None)
        elif command.kind is CommandKind.RESTORE:
            load_checkpoint(Path(command.body.decode()), self.learner)

    def _gather(self, snapshot: Snapshot | None) -> None:
        gather_weights(
            self.learner.policy, self.buckets, snapshot, rank=self.ranks.rank, world_size=self.ranks.world_size
        )

    def _save(self, version: PolicyVersion, controller: dict[str, Any] | None) -> Path:
        folder = self.config.run_folder / CHECKPOINTS
        return save_checkpoint(folder, version, self.learner, controller, keep=self.config.trainer.keep_checkpoints)
