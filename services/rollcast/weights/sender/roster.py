"""The generators and the state of each. Not thread-safe: the publisher holds the lock and passes
the time.

announce --> waiting --(caught up by a private group)--> joined --(asks to leave, confirmed)--> gone
                |  ^                                       |
                |  +-- its stream broke, then reconnected -+
                +- silent | disconnected | hung | unacknowledged | failed -> fenced:
                                                                             its name never returns
"""

import hmac
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Literal

from rollcast.telemetry.logging import get_logger
from rollcast.weights.sender.sightings import LAPSE_SECONDS, MAX_KEY_BYTES, Sightings
from rollcast.wire import weights_pb2
from rollcast.wire.version import WIRE_VERSION, PolicyVersion, Surviving, survives, wire_mismatch

Fault = Literal["silent", "disconnected", "hung", "unacknowledged", "failed"]
MAX_FAILURES = 3
"""Broken groups in a row that count against a generator (`Roster.blame`), after which it is
fenced."""
NAME_TAKEN = "another generator of this name is alive"
"""Reason for refusing an announcement."""

log = get_logger()


@dataclass(frozen=True)
class Member:
    """A generator's state for the trainer: an unchangeable copy of its seat."""

    name: str
    version: PolicyVersion | None  # newest that it acknowledged, or announced and may sample with
    joined: bool  # takes part in the publishing group
    ready: bool  # joined, at most one step behind the newest version, not draining
    draining: bool
    running_rollouts: int
    decode_tokens_per_second: float  # of one rollout, recent; 0 = unknown
    slots: int
    allocated_since: float  # its devices count from then on; monotonic seconds of the trainer


@dataclass(frozen=True)
class SeatRefusal:
    """The call ends with an error that names a mistake of configuration."""

    reason: str


Outgoing = SimpleQueue["weights_pb2.FromTrainer | SeatRefusal | None"]
"""Messages that one stream still has to send; None ends the stream."""


@dataclass(frozen=True)
class SeatAnswer:
    """A generator's answer about the group that it was last asked to join."""

    good: bool
    reason: str = ""


@dataclass(eq=False)
class Seat:
    """A generator's place, kept while its stream is broken if it reconnects in time."""

    name: str
    num_workers: int
    slots: int
    outgoing: Outgoing
    version: PolicyVersion | None
    arrived_at: float
    heard_at: float
    stepped_at: float  # when the engine last moved, or had nothing to do
    allocated_since: float
    key: bytes = b""  # of its process
    connected: bool = True
    joined: bool = False
    leaving: bool = False
    epoch: int = 0  # of the group it was last asked to join; answers for others are stale
    answer: SeatAnswer | None = None
    failures: int = 0  # groups that broke, probably because of it, since it last acknowledged
    heartbeat: weights_pb2.Heartbeat = field(default_factory=weights_pb2.Heartbeat)

    def may_be_taken_over(self, key: bytes) -> bool:
        """Whether an announcement under this name is from the same process.

        Without a key: whether its stream broke.
        """
        return hmac.compare_digest(self.key, key) if self.key else not self.connected

    def send(self, message: weights_pb2.FromTrainer) -> None:
        self.outgoing.put(message)

    def note_heartbeat(self, heartbeat: weights_pb2.Heartbeat, now_seconds: float) -> None:
        """Record a heartbeat."""
        # An engine with work must have stepped, except while it applies an update.
        may_stand_still = heartbeat.applying or not heartbeat.running_rollouts
        if may_stand_still or heartbeat.engine_steps != self.heartbeat.engine_steps:
            self.stepped_at = now_seconds
        self.heartbeat = heartbeat

    def respond(self, epoch: int, answer: SeatAnswer) -> None:
        """Record the outcome in `epoch`."""
        # That of an earlier group is ignored: it was dropped, whatever it did.
        if epoch == self.epoch:
            self.answer = answer

    def acknowledge(self, epoch: int, version: PolicyVersion) -> None:
        """Record that it applied `version`."""
        # This counts even if the group is an earlier one: the engine has the weights.
        self.version = version
        self.failures = 0
        self.respond(epoch, SeatAnswer(good=True))

    def fault(
        self, now_seconds: float, patience_seconds: float, suspicion_seconds: float, suspected: bool
    ) -> Fault | None:
        """Why it must be fenced; None = it need not.

        patience_seconds: longest silence, and longest standstill of an engine with work.
        suspicion_seconds: the shorter time that applies while its stream is broken, or while a
        group failed that it has not reported (`suspected`). If both are true it is fenced
        immediately.
        """
        silent = now_seconds - self.heard_at
        if not self.connected and (suspected or silent > suspicion_seconds):
            return "disconnected"
        if silent > (suspicion_seconds if suspected else patience_seconds):
            return "silent"
        if now_seconds - self.stepped_at > patience_seconds:
            return "hung"
        if self.failures >= MAX_FAILURES:
            return "failed"
        return None

    def member(self, newest: PolicyVersion | None) -> Member:
        current = (
            self.version is not None
            and newest is not None
            and self.version.incarnation == newest.incarnation
            and self.version.step >= newest.step - 1
        )
        draining = self.heartbeat.draining or self.leaving
        return Member(
            name=self.name,
            version=self.version,
            joined=self.joined,
            ready=self.joined and current and self.connected and not draining,
            draining=draining,
            running_rollouts=self.heartbeat.running_rollouts,
            decode_tokens_per_second=self.heartbeat.decode_tokens_per_second,
            slots=self.slots,
            allocated_since=self.allocated_since,
        )


class Roster:
    """All seats, and the names that were fenced."""

    def __init__(
        self,
        incarnation: int,
        lm_head: str,
        history: Sequence[tuple[int, int]] = (),
        *,
        router_replay: bool = False,
        uses_store: bool = False,
    ) -> None:
        self._incarnation = incarnation
        self._history = [Surviving(*entry) for entry in history]
        self._lm_head = lm_head
        self._router_replay = router_replay
        self._uses_store = uses_store
        self._seats: dict[str, Seat] = {}
        self._fenced: dict[str, str] = {}
        self._fenced_keys: set[bytes] = set()
        self.sightings = Sightings()

    def __iter__(self) -> Iterator[Seat]:
        return iter(list(self._seats.values()))

    def __contains__(self, seat: Seat) -> bool:
        return self._seats.get(seat.name) is seat

    def joined_seats(self) -> list[Seat]:
        return [seat for seat in self if seat.joined]

    def due_joiners(self, arrival_cutoff: float) -> list[Seat]:
        """Generators that wait to join, once one of them has waited since `arrival_cutoff`: others
        may join with it.
        """
        waiting = self.still_joining([seat for seat in self if not seat.joined])
        return waiting if any(seat.arrived_at <= arrival_cutoff for seat in waiting) else []

    def still_joining(self, seats: Sequence[Seat]) -> list[Seat]:
        """Seats that are still there: the others would only be waited for."""
        return [seat for seat in seats if seat in self and not seat.leaving and seat.connected]

    def hand_over(self, name: str, sequences: Sequence[int]) -> bool:
        seat = self._seats.get(name)
        if seat is None or not seat.connected:
            return False
        seat.send(weights_pb2.FromTrainer(hand_over=weights_pb2.HandOver(sequences=sequences)))
        return True

    def lowest_step(self) -> int | None:
        """Oldest step that any engine may sample with; None if no engine has weights."""
        # One whose stream broke goes on sampling until it is fenced, and claims until it notices.
        # One without weights claims nothing, nor does one whose weights a restart lost, because it
        # withdraws them.
        return min((seat.version.step for seat in self if seat.version is not None), default=None)

    def admit(
        self, announce: weights_pb2.Announce, outgoing: Outgoing, now_seconds: float
    ) -> Seat | SeatRefusal | None:
        """Give a place.

        None = it must come back under a new name: this one was fenced, or its owner is alive.
        """
        if (refusal := self._refusal(announce)) is not None:
            return refusal
        name = announce.generator
        old = self._seats.get(name)
        is_name_taken = old is not None and not old.may_be_taken_over(announce.key)
        if name in self._fenced or is_name_taken:
            outgoing.put(leave_message(NAME_TAKEN if is_name_taken else self._fenced[name]))
            outgoing.put(None)
            return None
        announced = PolicyVersion.from_proto(announce.version)
        # Weights of lost steps count as none: the generator withdraws them.
        is_held = announce.HasField("version") and survives(
            announced, self._incarnation, self._history
        )
        # A process that was fenced has aborted its rollouts, and claims nothing before it has
        # acknowledged: its version delays no other generator.
        is_held = is_held and not (announce.key and announce.key in self._fenced_keys)
        claimed_since = now_seconds - announce.uncounted_seconds
        allocated_since = max(claimed_since, self.sightings.claim(announce.key, now_seconds))
        if old is None and allocated_since - claimed_since > LAPSE_SECONDS:
            log.warning(
                "only the part of a generator's start-up in which it was seen is counted",
                generator=name,
                claimed_seconds=announce.uncounted_seconds,
                counted_seconds=now_seconds - allocated_since,
            )
        seat = Seat(
            name=name,
            num_workers=announce.num_workers,
            slots=announce.slots,
            outgoing=outgoing,
            version=announced if is_held else None,
            arrived_at=now_seconds,
            heard_at=now_seconds,
            stepped_at=now_seconds,
            allocated_since=allocated_since,
            key=announce.key,
        )
        if old is not None:  # the same process reconnected: its devices were never free
            seat.allocated_since = old.allocated_since
            seat.leaving = old.leaving
            seat.failures = old.failures
            old.outgoing.put(None)
        self._seats[name] = seat
        return seat

    def _refusal(self, announce: weights_pb2.Announce) -> SeatRefusal | None:
        """Why the announcement contradicts itself or this trainer's settings, if it does."""
        if mismatch := wire_mismatch(generator=announce.wire, trainer=WIRE_VERSION):
            return SeatRefusal(mismatch)
        max_name_bytes = 256
        max_workers = 1024
        if (
            not 0 < len(announce.generator.encode()) <= max_name_bytes
            or not 0 < announce.num_workers <= max_workers
        ):
            return SeatRefusal(
                f"announce: the name needs 1-{max_name_bytes} bytes, num_workers 1-{max_workers}"
            )
        if len(announce.key) > MAX_KEY_BYTES:
            return SeatRefusal(
                f"announce: key has {len(announce.key)} bytes; it may have {MAX_KEY_BYTES}"
            )
        if not 0 <= announce.uncounted_seconds < math.inf:
            return SeatRefusal(
                f"announce: uncounted_seconds = {announce.uncounted_seconds} is not a duration"
            )
        if announce.lm_head != self._lm_head:
            return SeatRefusal(
                f"recipe.lm_head = {announce.lm_head!r} at the generator, {self._lm_head!r} at the "
                "trainer; give both the same run file"
            )
        if announce.router_replay != self._router_replay:
            return SeatRefusal(
                f"recipe.router_replay = {str(announce.router_replay).lower()} at the generator, "
                f"{str(self._router_replay).lower()} at the trainer; give both the same run file"
            )
        if announce.pulls != self._uses_store:
            ways = {True: "from a store", False: "over process groups"}
            return SeatRefusal(
                f"weights.transport: the generator takes versions {ways[announce.pulls]}, the "
                f"trainer publishes them {ways[self._uses_store]}; give both the same run file"
            )
        return None

    def blame(self, seats: Sequence[Seat]) -> None:
        """Count a broken group against the seats that were not well in it, if no lost generator
        explains it.

        All members of a group see the same error, whoever causes it. So those of a common group
        must acknowledge in a private one before they are members again: there the cause is alone,
        and a success clears the others.
        """
        if any(seat not in self for seat in seats):
            return
        for seat in seats:
            # Rank 0 gives up an opening before the seats do: one that could not come has not
            # answered yet.
            if seat.answer is None or not seat.answer.good:
                seat.failures += 1
                seat.joined = seat.joined and len(seats) == 1

    def release(self, seat: Seat) -> None:
        """Let it leave in good order; its name may come again."""
        self._drop(seat, "left")

    def fence(self, seat: Seat, reason: str) -> None:
        """Remove it permanently; a later announcement under this name is refused
        with the reason.
        """
        self._fenced[seat.name] = reason
        self._fenced_keys.add(seat.key)
        self._drop(seat, reason)

    def _drop(self, seat: Seat, reason: str) -> None:
        del self._seats[seat.name]
        # Its process may come back under another name: this time must not be counted twice.
        self.sightings.count(seat.key, seat.heard_at)
        seat.send(leave_message(reason))
        seat.outgoing.put(None)


def leave_message(reason: str) -> weights_pb2.FromTrainer:
    return weights_pb2.FromTrainer(leave=weights_pb2.Leave(reason=reason))


def welcome_message(incarnation: int, history: Sequence[tuple[int, int]]) -> weights_pb2.Welcome:
    return weights_pb2.Welcome(
        incarnation=incarnation,
        wire=WIRE_VERSION,
        history=[
            weights_pb2.SurvivingIncarnation(incarnation=i, last_step=last_step)
            for i, last_step in history
        ],
    )
