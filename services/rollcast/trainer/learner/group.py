"""The learner's ranks as one object.

    rank 0     build -> restore? -> ( update | stage | save | gather | export )* -> stop
    others     build -> follow, which does its part of each of these until stop; asked to stop, it
               notifies rank 0
               lane thread: sends staged rows, as rank 0's publisher orders

Every call at rank 0 first sends a command, then takes part in the same collectives as the others;
calls come from one thread. Between calls no rank waits inside a collective.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from torch.distributed import DistNetworkError

from rollcast.config.errors import UserError, WrongNumbersError
from rollcast.config.out_of_memory import OutOfMemory, told_what_did_not_fit
from rollcast.config.run import RunConfig
from rollcast.runfolder.files import Place, checkpoint_place, parse_location
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.adapter_export import make_export
from rollcast.trainer.learner.batch import (
    MicroBatch,
    RouterShape,
    TrainingSequence,
    decode_micro_batches,
    denominator,
    encode_micro_batches,
    plan_micro_batches,
)
from rollcast.trainer.learner.build import MORE_RANKS, build_learner, make_rank_store
from rollcast.trainer.learner.checkpoint import load_checkpoint, load_weights, storage_at
from rollcast.trainer.learner.commands import (
    CommandKind,
    CommandReceiver,
    CommandSender,
    RankCommand,
)
from rollcast.trainer.learner.learner import Learner
from rollcast.trainer.learner.loss_tape import LossTape
from rollcast.trainer.learner.model import stage_shard, weight_specs
from rollcast.trainer.learner.number_checks import check_finite, compare_ranks
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.saving import CheckpointSaver, ChooseBest
from rollcast.trainer.learner.step_sums import UpdateStats
from rollcast.trainer.learner.whole_weights import WholeWeights
from rollcast.weights.plan.manifest import TensorSpec, plan_buckets
from rollcast.weights.plan.shards import shard_buckets
from rollcast.weights.sender.lanes import Lanes, LaneSender
from rollcast.weights.sender.staging import StagingSlots
from rollcast.wire.version import PolicyVersion

STAGED = "what this rank stages for the generators, versions of its rows in host memory,"
END_PATIENCE_SECONDS = 10.0
"""How long other ranks may take to read how the run ended: the store ends with rank 0's process."""
log = get_logger()


class LearnerGroup:
    """All ranks of the learner, seen from one of them."""

    def __init__(self, config: RunConfig, learner: Learner) -> None:
        self.config = config
        self.learner = learner
        self.ranks = learner.ranks
        if config.record.is_on:
            learner.tape = LossTape(self.ranks, list(learner.policy.trained_weights()))
        self.specs: tuple[TensorSpec, ...] = weight_specs(learner.policy, config.model.dtype)
        """The published weights, in order, in the generators' dtype."""
        self.buckets = plan_buckets(self.specs, config.weights.bucket_bytes)
        with told_what_did_not_fit(STAGED, MORE_RANKS):
            # Further replicas hold the same rows, and send none.
            is_first_replica = self.ranks.rank < self.ranks.num_shards
            self.slots = StagingSlots(
                shard_buckets(self.buckets, self.ranks.rank, self.ranks.num_shards)
                if is_first_replica
                else ()
            )
            self.rank_store = make_rank_store(
                config.weights, config.run_folder, self.ranks.rank, self.slots
            )
        """`slots`: this rank's rows of the published versions, if it is of the first replica;
        `rank_store`: its end of the store of weights."""
        location = checkpoint_place(config.run_folder, config.trainer.checkpoints)
        self.choose_best: ChooseBest = lambda names: ()
        """Rank 0 of a run sets what chooses the older checkpoints that stay."""
        self.saver = CheckpointSaver(
            learner,
            storage_at(location),
            keep=config.trainer.keep_checkpoints,
            choose_best=lambda names: self.choose_best(names),
        )
        self.sender = CommandSender(self.ranks.store, self.ranks.world_size)
        self._lane_sender = CommandSender(self.ranks.lane_store, self.ranks.num_shards)

    @classmethod
    def build(cls, config: RunConfig, ranks: Ranks) -> LearnerGroup:
        """Read, shard and wrap the model on this rank.

        Raises UserError if it cannot be read, or does not fit.
        """
        group = cls(
            config,
            build_learner(config.model, config.recipe, config.trainer, ranks, seed=config.seed),
        )
        group.reserve()
        return group

    def reserve(self) -> None:
        """Take what checkpoints are copied into, before the first step.

        Raises UserError if it does not fit.
        """
        with told_what_did_not_fit(
            "the copy of weights and optimizer that a checkpoint is written from", MORE_RANKS
        ):
            self.saver.reserve()

    @property
    def vocab_size(self) -> int:
        """Token ids at or above it must not reach `update`."""
        return self.learner.policy.vocab_size

    @property
    def routing(self) -> RouterShape | None:
        """Shape of the expert choices that must reach `update`; None = no replay."""
        replay = self.learner.policy.replay
        return None if replay is None else replay.routing

    def update(
        self, sequences: Sequence[TrainingSequence], between: Callable[[], None] = lambda: None
    ) -> UpdateStats:
        """Make one optimizer step on the kept rollouts of a batch; at least one must carry loss.

        `between` is called here, on rank 0, after each of its micro-batches.
        """
        loss_denominator = denominator(sequences)
        assert loss_denominator > 0, "a batch without loss tokens makes no update"
        ranks = plan_micro_batches(
            sequences,
            world_size=self.ranks.world_size,
            max_tokens=self.config.trainer.tokens_per_micro_batch,
            packing=self.config.trainer.packing,
        )
        if self.learner.tape is not None:
            self.learner.tape.plan = ranks
        other_ranks = range(1, self.ranks.world_size)
        # Before its own part: the others are needed in the first collective.
        self.sender.send(
            CommandKind.UPDATE,
            {rank: encode_micro_batches(ranks[rank], loss_denominator) for rank in other_ranks},
        )
        return self._update(ranks[0], loss_denominator, between)

    def gather_weights(self) -> WholeWeights:
        """Begin to gather the trained weights of now in rank 0's host memory."""
        gathering: WholeWeights = self._order(CommandKind.GATHER, "")
        return gathering

    @property
    def lanes(self) -> Lanes:
        """The lanes of the publisher; its orders come from one thread."""
        sender = self._lane_sender
        return Lanes(
            self.ranks.num_shards, partial(sender.send, CommandKind.LANE), sender.take_reply
        )

    def stage(self, slot: int, version: PolicyVersion) -> None:
        """Fill `slot` of every rank with its rows of the current weights."""
        self._order(CommandKind.STAGE, json.dumps([slot, *version]))

    def save(self, version: PolicyVersion, controller: dict[str, Any]) -> Future[Place]:
        """Begin to write a checkpoint with the controller's state (JSON); the one before is waited
        for.

        The result is its place. UserError, here or as the result: the disk is full or not writable.
        """
        self.saver.wait_written()
        done: Future[Place] = Future()
        if (path := self.saver.replace_controller(version, controller)) is not None:
            done.set_result(path)
            return done
        self.sender.send(CommandKind.SAVE, str(version).encode())
        return self.saver.begin(version, controller)

    def restore(self, checkpoint: Place) -> dict[str, Any]:
        """Continue from a checkpoint; return the controller's state.

        Raises UserError if it does not fit.
        """
        return dict(self._order(CommandKind.RESTORE, str(checkpoint)))

    def take_weights(self, checkpoint: Place) -> dict[str, Any]:
        """Begin with another run's weights; return its controller's state.

        Raises UserError if they do not fit.
        """
        return dict(self._order(CommandKind.TAKE_WEIGHTS, str(checkpoint)))

    def export(self, folder: Path) -> None:
        """Write the weights as a Hugging Face folder, adapters as PEFT's.

        Raises UserError if that fails.
        """
        self._order(CommandKind.EXPORT, str(folder))

    def _order(self, kind: CommandKind, body: str) -> Any:
        """Rank 0: let every other rank carry out a command, and carry it out."""
        self.sender.send(kind, body.encode())
        return self._carry_out(RankCommand(kind, body.encode()))

    def stop(self, ending: TrainerEnding) -> None:
        """Let the other ranks return `ending` from `follow`, and wait until they have read it.

        A checkpoint that is being written is waited for. After a failure they may hang in a
        collective: then not long.
        """
        self.saver.wait_written(END_PATIENCE_SECONDS if ending is TrainerEnding.FAILED else None)
        self._lane_sender.send(CommandKind.STOP)
        self.sender.send(CommandKind.STOP, str(ending.value).encode())
        if ending is not TrainerEnding.FAILED and not self.sender.wait_received(
            END_PATIENCE_SECONDS
        ):
            log.warning("not every rank has read how the run ended", ending=ending.name.lower())

    def follow(self, stop_requested: Callable[[], bool] = lambda: False) -> TrainerEnding:
        """Ranks above 0: carry out rank 0's commands until it stops; returns how the run ended.

        Raises UserError if this rank cannot do its part of an update, or has not the memory for a
        command. When `stop_requested` turns true, rank 0 is notified and ends all ranks in order.
        """
        patience_seconds = self.config.trainer.collective_timeout_seconds
        receiver = CommandReceiver(self.ranks.store, self.ranks.rank, patience_seconds)
        lane = None
        if self.ranks.rank < self.ranks.num_shards:
            orders = CommandReceiver(self.ranks.lane_store, self.ranks.rank)
            lane = LaneSender(
                self.ranks.rank,
                self.slots,
                self.ranks.device,
                _lane_orders(orders),
                self.rank_store,
                orders.reply,
            )

        def pass_on() -> None:
            if lane is not None:
                lane.check()
            if stop_requested():
                receiver.ask_to_stop()

        try:
            while (command := receiver.receive(pass_on)).kind is not CommandKind.STOP:
                try:
                    self._carry_out(command)
                except UserError as error:
                    is_shared = isinstance(error, WrongNumbersError)
                    if (command.kind is CommandKind.UPDATE and not is_shared) or isinstance(
                        error, OutOfMemory
                    ):
                        # Perhaps of this rank alone: the process must end, and the others with it.
                        log.error(
                            "this rank cannot go on",
                            command=command.kind.name.lower(),
                            error=str(error),
                        )
                        raise
                    # Otherwise every rank raises it together; rank 0 reports it and decides how to
                    # go on.
        except DistNetworkError as error:
            log.error("rank 0 is gone", error=" ".join(str(error).split())[:200])
            return TrainerEnding.FAILED
        finally:
            if lane is not None:
                # How long a lane's thread may take to end
                lane.stop(5.0)
        # This rank's part of the last checkpoint may still be on its way to the disk.
        self.saver.wait_written(END_PATIENCE_SECONDS)
        return TrainerEnding(int(command.body))

    def _carry_out(self, command: RankCommand) -> Any:
        """This rank's part of a command; returns the controller's state of a checkpoint that was
        read.
        """
        match command.kind:
            case CommandKind.UPDATE:
                self._update(*decode_micro_batches(command.body))
            case CommandKind.STAGE:
                slot, *version = json.loads(command.body)
                self._stage(slot, PolicyVersion(*version))
            case CommandKind.SAVE:
                self.saver.wait_written()
                self.saver.begin(PolicyVersion.parse(command.body.decode()), None)
            case CommandKind.RESTORE:
                return self._read(parse_location(command.body.decode()), "", load_checkpoint)
            case CommandKind.TAKE_WEIGHTS:
                return self._read(
                    parse_location(command.body.decode()), " (model.from_run)", load_weights
                )
            case CommandKind.GATHER:
                assert self.learner.tape is not None
                return self.learner.tape.gather()
            case CommandKind.EXPORT:
                self._export(Path(command.body.decode()))
        return None

    def _stage(self, slot: int, version: PolicyVersion) -> None:
        write = partial(stage_shard, self.learner.policy)
        with told_what_did_not_fit(STAGED, MORE_RANKS):
            self.slots.fill(slot, version, self.config.weights.bucket_timeout_seconds, write)
        # An exchange too: rank 0 publishes only what every rank has staged.
        check_finite(self.learner.weights, "weights", "published")

    def _update(
        self,
        micro_batches: Sequence[MicroBatch],
        loss_denominator: float,
        between: Callable[[], None] = lambda: None,
    ) -> UpdateStats:
        trainer = self.config.trainer
        remedies = f"lower trainer.tokens_per_micro_batch (now {trainer.tokens_per_micro_batch})"
        if trainer.activation_checkpointing is not True:
            remedies += ", set trainer.activation_checkpointing"
        with told_what_did_not_fit("an update", f"{remedies}, or {MORE_RANKS}"):
            stats = self.learner.update(micro_batches, loss_denominator, between)
            # Here, since no weights are broadcast meanwhile: before the step's checkpoint, so that
            # each is of ranks that agreed. Between 50 updates its pass over 64 tokens is nothing.
            if (
                self.ranks.world_size > 1
                and stats.applied
                and self.learner.updates % trainer.checkpoint_every_steps == 0
            ):
                compare_ranks(self.learner, stats)
            return stats

    def _read(
        self,
        checkpoint: Place,
        setting: str,
        read_state: Callable[[Place, Learner], dict[str, Any]],
    ) -> dict[str, Any]:
        with told_what_did_not_fit(
            f"this rank's part of the checkpoint {checkpoint}{setting}", MORE_RANKS
        ):
            return read_state(checkpoint, self.learner)

    def _export(self, folder: Path) -> None:
        """Rank 0 gathers weight by weight and holds a file of them in host memory."""
        export = make_export(
            self.learner.policy,
            self.config.model,
            folder,
            custom_functions=self.config.recipe.custom_functions,
        )
        with told_what_did_not_fit(
            "a weight gathered for the export", "give each trainer machine more memory"
        ):
            export.write() if self.ranks.rank == 0 else export.take_part()


def _lane_orders(receiver: CommandReceiver) -> Iterator[bytes]:
    """Until rank 0 says that the run has ended, or is gone."""
    with suppress(DistNetworkError):
        while (command := receiver.receive()).kind is CommandKind.LANE:
            yield command.body
