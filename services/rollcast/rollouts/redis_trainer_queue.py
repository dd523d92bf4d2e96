"""The trainer's end of wire 1 over Redis streams. `redis_streams` has what both ends share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from redis.typing import EncodableT

from rollcast.config.connections import Redis as RedisSettings
from rollcast.config.errors import UserError
from rollcast.connections.redis import connect
from rollcast.rollouts import index
from rollcast.rollouts.base import MAX_FAILURES, Delivery, Outstanding, Redispatch
from rollcast.rollouts.codec import decode_group, encode_task
from rollcast.rollouts.errors import CodecError, QueueAway
from rollcast.rollouts.keys import TRAINER
from rollcast.rollouts.outage import PATIENCE_SECONDS
from rollcast.rollouts.records import PromptTask
from rollcast.rollouts.redis_streams import RedisQueueEnd, may_exist, script_source, told_by
from rollcast.telemetry.logging import get_logger

Row = tuple[bytes, dict[bytes, bytes]]
"""An entry of a stream: its id, and its fields."""
log = get_logger()


class RedisTrainerQueue(RedisQueueEnd):
    """Trainer rank 0's end. See `base.TrainerQueue`."""

    def __init__(
        self, settings: RedisSettings, run: str, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        super().__init__(settings, run, patience_seconds)
        self._client = connect(settings)
        self._delivered_ids: set[str] = set()
        """Entries on :rollouts that were delivered and not removed."""
        self._look_back = True
        """Whether entries may be pending that this object never saw: a former trainer's, or of a
        lost reply."""
        self._unreadable = 0

    def start_incarnation(self, at_least: int) -> int:
        incarnation = self._run("incarnation", at_least)
        if isinstance(incarnation, bytes):
            raise UserError(
                f"redis: incarnation in {self._keys.state} is {incarnation[:200]!r}, not a number; "
                "set it (HSET) to the highest incarnation that the trainer's log names"
            )
        return int(incarnation)

    def dispatch(self, tasks: Sequence[PromptTask]) -> list[int]:
        added: list[int] = []
        for start in range(0, len(tasks), 64):
            arguments: list[EncodableT] = []
            for task in tasks[start : start + 64]:
                version = index.version_text(task.first_version)
                arguments += [
                    task.sequence,
                    task.attempt,
                    task.purpose.value,
                    version,
                    encode_task(task),
                ]
            added += map(int, self._run("dispatch", *arguments))
        return added

    def read(self, max_groups: int, block_seconds: float) -> list[Delivery]:
        rows = self._left_behind(max_groups) if self._look_back else []
        self._look_back = bool(rows)
        if not rows:
            rows = self._new(max_groups, block_seconds)
            self._look_back = not rows
        deliveries: list[Delivery] = []
        try:
            for entry_id, fields in self._owned_rows(rows):
                if delivery := self._deliver(entry_id, fields):
                    deliveries.append(delivery)
        except QueueAway:
            self._delivered_ids.difference_update(delivery.stream_id for delivery in deliveries)
            self._look_back = True
            raise
        return deliveries

    def remove(self, stream_ids: Sequence[str]) -> None:
        if stream_ids:
            self._run("remove", *stream_ids)
            self._delivered_ids.difference_update(stream_ids)

    def bury(self, reasons: Mapping[str, str]) -> None:
        if reasons:
            self._run("bury", *(word for item in reasons.items() for word in item))
            self._delivered_ids.difference_update(reasons)

    def outstanding(self) -> Outstanding:
        result, damaged = index.outstanding(self._snapshot())
        if damaged:
            log.warning(
                "records of :inflight that cannot be read",
                records=[repr(item)[:200] for item in damaged[:8]],
            )
            self._run("forget", *(word for item in damaged for word in item))
            result, _ = index.outstanding(self._snapshot())
        return result

    def _snapshot(self) -> Iterable[tuple[bytes, bytes]]:
        flat = self._run("snapshot")
        return zip(flat[::2], flat[1::2], strict=True)

    def fence(self, owner: str, reason: str) -> Redispatch:
        return _redispatch(self._run("fence", owner, reason, MAX_FAILURES))

    def sweep(self, idle_seconds: float) -> Redispatch:
        reason = f"its owner was silent for {idle_seconds:g} s"
        return _redispatch(self._run("sweep", int(idle_seconds * 1000), reason, MAX_FAILURES))

    def redo(self, sequences: Sequence[int], reason: str) -> Redispatch:
        return _redispatch(self._run("redo", reason, MAX_FAILURES, *sequences))

    def retire(self, sequences: Sequence[int]) -> None:
        if sequences:
            self._run("retire", *sequences)

    def count_refused(self) -> int:
        return self._counter("refused")

    def unreadable(self) -> int:
        total = self._counter("unreadable")
        if total > self._unreadable:
            log.warning(
                "unusable entries were buried, each with its reason",
                total=total,
                stream=self._keys.dead,
            )
        self._unreadable = total
        return total

    def _counter(self, name: str) -> int:
        """A value that is not a number counts as 0, as it does for the scripts."""
        text: bytes = self._call(lambda: self._client.hget(self._keys.state, name)) or b"0"
        return int(text) if text.isdigit() and len(text) <= 15 else 0

    def get_state(self, name: str) -> bytes | None:
        value: bytes | None = self._call(
            lambda: self._client.hget(self._keys.state, f"trainer:{name}")
        )
        return value

    def set_state(self, name: str, value: bytes) -> None:
        self._call(lambda: self._client.hset(self._keys.state, f"trainer:{name}", value))

    def close(self) -> None:
        self._client.close()

    def _new(self, max_groups: int, block_seconds: float) -> list[Row]:
        block = int(min(block_seconds, self._longest_block) * 1000)
        # A block of 0 milliseconds would wait without end.
        reply = self._call(
            lambda: self._client.xreadgroup(
                TRAINER, TRAINER, {self._keys.rollouts: ">"}, count=max_groups, block=block or None
            )
        )
        return reply[0][1] if reply else []

    def _left_behind(self, max_groups: int) -> list[Row]:
        pending = self._call(lambda: self._client.xpending(self._keys.rollouts, TRAINER))["pending"]
        if pending == len(self._delivered_ids):
            return []
        pending = self._call(
            # Entries of one answer, so that no call of Redis takes long
            lambda: self._client.xpending_range(self._keys.rollouts, TRAINER, "-", "+", 10_000)
        )
        rows: list[Row] = []
        for entry_id in (row["message_id"] for row in pending):
            if len(rows) < max_groups and entry_id.decode() not in self._delivered_ids:
                entries = self._call(
                    partial(self._client.xrange, self._keys.rollouts, entry_id, entry_id)
                )
                rows += entries
                if not entries:
                    self._call(partial(self._client.xack, self._keys.rollouts, TRAINER, entry_id))
        return rows

    def _owned_rows(self, rows: list[Row]) -> list[Row]:
        """The entries that an owner of their task published; the others are buried."""
        if not rows:
            return []
        words = [word for entry_id, fields in rows for word in (entry_id, fields.get(b"s", b""))]
        published = set(self._run("published", *words))
        return [row for row in rows if row[0] in published]

    def _deliver(self, entry_id: bytes, fields: dict[bytes, bytes]) -> Delivery | None:
        stream_id = entry_id.decode()
        if stream_id in self._delivered_ids:
            return None
        try:
            payload = _field(fields, b"d")
            group = decode_group(payload, self._count_unknown)
            for name, value in told_by(group).items():
                if _field(fields, name) != value.encode():
                    raise CodecError(f"the entry's field {name.decode()} is not the group's")
        except CodecError as error:
            log.warning("unreadable rollout group", stream_id=stream_id, error=str(error))
            self._run("unreadable", "rollouts", stream_id, f"unreadable group: {error}")
            return None
        self._delivered_ids.add(stream_id)
        return Delivery(stream_id, group, len(payload))

    def _run(self, name: str, *arguments: EncodableT) -> Any:
        script = self._client.register_script(script_source(name))
        return self._call(lambda: script(keys=self._keys.all, args=arguments))

    def _call(self, command: Callable[[], Any]) -> Any:
        return self._outage.call(command, self._make_groups)

    def _make_groups(self) -> None:
        for stream, group in self._keys.consumer_groups:
            with may_exist():
                self._client.xgroup_create(stream, group, id="0", mkstream=True)


def _field(fields: dict[bytes, bytes] | None, name: bytes) -> bytes:
    if not fields or name not in fields:
        raise CodecError(f"the entry has no field {name.decode()}")
    return fields[name]


def _redispatch(reply: list[list[bytes]]) -> Redispatch:
    return Redispatch(tuple(map(int, reply[0])), tuple(map(int, reply[1])))
