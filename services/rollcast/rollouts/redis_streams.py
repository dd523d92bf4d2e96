"""Wire 1 over Redis streams. `base` describes the calls; the atomic parts are the scripts in lua/.

A claim, its record in :inflight and everything that happens to a task later are one script each, so
`:inflight` is true at every moment. A reply that got lost on the way is found again: whoever reads
compares how many entries are pending under its name with how many it knows.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import resources
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from rollcast.config.connections import Redis as RedisSettings
from rollcast.config.errors import UserError
from rollcast.connections.redis import connect, connect_async
from rollcast.rollouts import index
from rollcast.rollouts.base import MAX_FAILURES, Claimed, Delivery, Outstanding, Redispatch
from rollcast.rollouts.codec import decode_group, decode_task, encode_group, encode_task
from rollcast.rollouts.errors import CodecError, OwnerFenced, QueueAway
from rollcast.rollouts.keys import TRAINER, Keys
from rollcast.rollouts.outage import PATIENCE_SECONDS, Outage
from rollcast.rollouts.records import PromptTask, Purpose, RolloutGroup
from rollcast.telemetry.logging import get_logger
from rollcast.wire.version import PolicyVersion

_REBUILDING = frozenset({"snapshot", "dispatch"})
"""Scripts that first check :inflight against the streams."""
_Result = TypeVar("_Result")
log = get_logger()


@cache
def script_source(name: str) -> str:
    """Return the text of one Lua script, with the parts that it shares with others.

    Each takes every key of the run, in the order of `Keys.all`, and runs atomically.
    """
    parts = ["append", "entries", *(["rebuild"] if name in _REBUILDING else []), name]
    folder = resources.files("rollcast.rollouts") / "lua"
    return "\n".join(
        (folder / f"{part_name}.lua").read_text(encoding="utf-8") for part_name in parts
    )


class _QueueEnd:
    """One end of wire 1."""

    def __init__(self, settings: RedisSettings, run: str, patience_seconds: float) -> None:
        self._keys = Keys(run, settings.scope)
        self._longest_block = settings.timeout_seconds / 2
        self._outage = Outage(patience_seconds)
        self._unknown_fields = 0

    @property
    def away_seconds(self) -> float:
        return self._outage.seconds

    @property
    def unknown_fields(self) -> int:
        return self._unknown_fields

    def _count_unknown(self, count: int) -> None:
        self._unknown_fields += count


class RedisTrainerQueue(_QueueEnd):
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
            problem = (
                f"redis: incarnation in {self._keys.state} is {incarnation[:200]!r}, not a number"
            )
            raise UserError(
                f"{problem}; set it (HSET) to the highest incarnation that the trainer's log names"
            )
        return int(incarnation)

    def dispatch(self, tasks: Sequence[PromptTask]) -> list[int]:
        added: list[int] = []
        for start in range(0, len(tasks), 64):
            arguments: list[Any] = []
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

    def _new(self, max_groups: int, block_seconds: float) -> list[tuple[bytes, dict[bytes, bytes]]]:
        block = int(min(block_seconds, self._longest_block) * 1000)
        # A block of 0 milliseconds would wait without end.
        reply = self._call(
            lambda: self._client.xreadgroup(
                TRAINER, TRAINER, {self._keys.rollouts: ">"}, count=max_groups, block=block or None
            )
        )
        return reply[0][1] if reply else []

    def _left_behind(self, max_groups: int) -> list[tuple[bytes, dict[bytes, bytes]]]:
        pending = self._call(lambda: self._client.xpending(self._keys.rollouts, TRAINER))["pending"]
        if pending == len(self._delivered_ids):
            return []
        pending = self._call(
            # Entries of one answer, so that no call of Redis takes long
            lambda: self._client.xpending_range(self._keys.rollouts, TRAINER, "-", "+", 10_000)
        )
        rows: list[tuple[bytes, dict[bytes, bytes]]] = []
        for entry_id in (row["message_id"] for row in pending):
            if len(rows) < max_groups and entry_id.decode() not in self._delivered_ids:
                entries = self._call(
                    partial(self._client.xrange, self._keys.rollouts, entry_id, entry_id)
                )
                rows += entries
                if not entries:
                    self._call(partial(self._client.xack, self._keys.rollouts, TRAINER, entry_id))
        return rows

    def _owned_rows(
        self, rows: list[tuple[bytes, dict[bytes, bytes]]]
    ) -> Iterable[tuple[bytes, dict[bytes, bytes]]]:
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

    def _run(self, name: str, *arguments: Any) -> Any:
        script = self._client.register_script(script_source(name))
        return self._call(lambda: script(keys=self._keys.all, args=arguments))

    def _call(self, command: Callable[[], Any]) -> Any:
        return self._outage.call(command, self._make_groups)

    def _make_groups(self) -> None:
        for stream, group in self._keys.consumer_groups:
            with _may_exist():
                self._client.xgroup_create(stream, group, id="0", mkstream=True)


class RedisGeneratorQueue(_QueueEnd):
    """One generator's end. See `base.GeneratorQueue`."""

    def __init__(
        self,
        settings: RedisSettings,
        run: str,
        owner: str,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        assert owner, "a generator needs a name"
        assert not any(character.isspace() for character in owner), owner
        super().__init__(settings, run, patience_seconds)
        self.owner = owner
        self._client = connect_async(settings)
        self._attempt_seconds = (
            settings.timeout_seconds
        )  # the client alone would add those of connecting again
        self._recording = asyncio.Lock()
        self._claimed_entries: set[tuple[Purpose, str]] = set()
        """Entries claimed and not let go of."""

    async def claim(
        self,
        *,
        train: int,
        evals: int,
        first_version: Callable[[], PolicyVersion],
        block_seconds: float,
    ) -> list[Claimed]:
        if train <= 0 and evals <= 0:
            return []
        deadline = time.monotonic() + block_seconds
        while True:
            claimed, delivered = await self._claim_now(max(train, 0), max(evals, 0), first_version)
            remaining_seconds = min(deadline - time.monotonic(), self._longest_block)
            if claimed or remaining_seconds < 0.001:
                return claimed
            places = dict(zip((self._keys.evals, self._keys.tasks), delivered, strict=True))
            watched: dict[Any, Any] = {
                stream: places[stream]
                for stream, count in ((self._keys.evals, evals), (self._keys.tasks, train))
                if count > 0
            }
            # Only wakes: the entry itself is claimed by the script, together with its record.
            await self._call(
                partial(self._client.xread, watched, count=1, block=int(remaining_seconds * 1000))
            )

    async def wait_until_recorded(self) -> None:
        async with self._recording:
            return

    async def renew(self, claimed: Sequence[Claimed]) -> list[int]:
        if not claimed:
            return []
        places = [word for item in claimed for word in (item.task.purpose.value, item.stream_id)]
        lost = [claimed[position] for position in await self._run("renew", self.owner, *places)]
        self._claimed_entries.difference_update(
            (item.task.purpose, item.stream_id) for item in lost
        )
        return [item.task.sequence for item in lost]

    async def publish(self, claimed: Claimed, group: RolloutGroup) -> bool:
        assert group.sequence == claimed.task.sequence, (group.sequence, claimed.task.sequence)
        return await self._let_go_with("publish", claimed, group.first_version, encode_group(group))

    async def hand_back(self, claimed: Claimed, task: PromptTask) -> bool:
        assert task.sequence == claimed.task.sequence, (task.sequence, claimed.task.sequence)
        returned = claimed.handed_back(task)
        return await self._let_go_with(
            "hand_back", claimed, returned.first_version, encode_task(returned)
        )

    async def fail(self, claimed: Claimed, reason: str) -> bool:
        return await self._let_go("fail", claimed, reason, MAX_FAILURES)

    async def close(self) -> None:
        await self._client.aclose()

    async def _let_go_with(
        self, script: str, claimed: Claimed, version: PolicyVersion | None, payload: bytes
    ) -> bool:
        task = claimed.task
        return await self._let_go(
            script, claimed, task.sequence, task.attempt, index.version_text(version), payload
        )

    async def _let_go(self, script: str, claimed: Claimed, *arguments: Any) -> bool:
        purpose = claimed.task.purpose
        accepted = bool(
            await self._run(script, self.owner, purpose.value, claimed.stream_id, *arguments)
        )
        self._claimed_entries.discard((purpose, claimed.stream_id))
        return accepted

    async def _claim_now(
        self, train: int, evals: int, first_version: Callable[[], PolicyVersion]
    ) -> tuple[list[Claimed], list[bytes]]:
        """Repeated as a whole while Redis is away: who waits for them waits for one attempt, not
        for Redis.

        What an attempt claimed that then failed is found by the next one.
        """

        async def attempt() -> tuple[list[Claimed], list[bytes]]:
            # Held from the question for the version to its record, which `recorded` waits for.
            async with self._recording, asyncio.timeout(self._attempt_seconds):
                version = str(first_version())
                fenced, rows, num_pending, delivered = await self._script(
                    "claim", self.owner, evals, train, version
                )
                if fenced is not None:
                    raise OwnerFenced(
                        f"{self.owner} was removed from the run: {fenced.decode(errors='replace')}"
                    )
                claimed = await self._decode(rows)
                known_entries = self._claimed_entries | {
                    (item.task.purpose, item.stream_id) for item in claimed
                }
                # More are pending under this name than are known: a reply was lost on the way.
                if num_pending != len(known_entries):
                    places = [
                        f"{purpose.value} {stream_id}" for purpose, stream_id in known_entries
                    ]
                    claimed += await self._decode(
                        await self._script("recover", self.owner, version, *places)
                    )
                self._claimed_entries.update(
                    (item.task.purpose, item.stream_id) for item in claimed
                )
                return claimed, delivered

        return await self._call(attempt)

    async def _decode(self, rows: list[list[bytes]]) -> list[Claimed]:
        claimed = []
        for entry_id, sequence, attempt, purpose_text, version, payload in rows:
            stream_id = entry_id.decode()
            purpose = Purpose(purpose_text.decode())
            try:
                task = decode_task(payload, self._count_unknown)
                if (task.sequence, task.purpose) != (int(sequence), purpose):
                    raise CodecError("the entry's sequence or purpose is not the task's")
            except CodecError as error:
                log.warning("unreadable prompt task", stream_id=stream_id, error=str(error))
                await self._script(
                    "unreadable", purpose.value, stream_id, f"unreadable task: {error}"
                )
                continue
            task.attempt = int(attempt)
            claimed.append(Claimed(task, stream_id, PolicyVersion.parse(version.decode())))
        return claimed

    async def _run(self, name: str, *arguments: Any) -> Any:
        return await self._call(lambda: self._script(name, *arguments))

    async def _script(self, name: str, *arguments: Any) -> Any:
        return await self._client.register_script(script_source(name))(
            keys=self._keys.all, args=arguments
        )

    async def _call(self, command: Callable[[], Awaitable[_Result]]) -> _Result:
        return await self._outage.call_async(command, self._make_groups)

    async def _make_groups(self) -> None:
        for stream, group in self._keys.consumer_groups:
            with _may_exist():
                await self._client.xgroup_create(stream, group, id="0", mkstream=True)


@contextmanager
def _may_exist() -> Iterator[None]:
    """A consumer group that is there already is as good as a new one."""
    try:
        yield
    except ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise


def _field(fields: dict[bytes, bytes] | None, name: bytes) -> bytes:
    if not fields or name not in fields:
        raise CodecError(f"the entry has no field {name.decode()}")
    return fields[name]


def told_by(group: RolloutGroup) -> dict[bytes, str]:
    """Fields of a group's entry that repeat its content."""
    return {
        b"s": str(group.sequence),
        b"a": str(group.attempt),
        b"p": group.purpose.value,
        b"v": index.version_text(group.first_version),
        b"o": group.generator,
    }


def _redispatch(reply: list[list[bytes]]) -> Redispatch:
    return Redispatch(tuple(map(int, reply[0])), tuple(map(int, reply[1])))
