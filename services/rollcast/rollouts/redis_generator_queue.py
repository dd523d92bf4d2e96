"""A generator's end of wire 1 over Redis streams. `redis_streams` has what both ends share."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from redis.typing import EncodableT

from rollcast.config.connections import Redis as RedisSettings
from rollcast.connections.redis import connect_async
from rollcast.rollouts import index
from rollcast.rollouts.base import MAX_FAILURES, Claimed
from rollcast.rollouts.codec import decode_task, encode_group, encode_task
from rollcast.rollouts.errors import CodecError, OwnerFenced
from rollcast.rollouts.outage import PATIENCE_SECONDS
from rollcast.rollouts.records import PromptTask, Purpose, RolloutGroup
from rollcast.rollouts.redis_streams import RedisQueueEnd, may_exist, script_source
from rollcast.telemetry.logging import get_logger
from rollcast.wire.version import PolicyVersion

_Result = TypeVar("_Result")
log = get_logger()


class RedisGeneratorQueue(RedisQueueEnd):
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
            streams = (self._keys.evals, self._keys.tasks)
            requests = zip(streams, delivered, (evals, train), strict=True)
            watched: dict[Any, Any] = {
                stream: last for stream, last, count in requests if count > 0
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
        self._claimed_entries.difference_update(item.entry for item in lost)
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

    async def _let_go(self, script: str, claimed: Claimed, *arguments: EncodableT) -> bool:
        purpose = claimed.task.purpose.value
        accepted = await self._run(script, self.owner, purpose, claimed.stream_id, *arguments)
        self._claimed_entries.discard(claimed.entry)
        return bool(accepted)

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
                known_entries = self._claimed_entries | {item.entry for item in claimed}
                # More are pending under this name than are known: a reply was lost on the way.
                if num_pending != len(known_entries):
                    places = [
                        f"{purpose.value} {stream_id}" for purpose, stream_id in known_entries
                    ]
                    claimed += await self._decode(
                        await self._script("recover", self.owner, version, *places)
                    )
                self._claimed_entries.update(item.entry for item in claimed)
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

    async def _run(self, name: str, *arguments: EncodableT) -> Any:
        return await self._call(lambda: self._script(name, *arguments))

    async def _script(self, name: str, *arguments: EncodableT) -> Any:
        return await self._client.register_script(script_source(name))(
            keys=self._keys.all, args=arguments
        )

    async def _call(self, command: Callable[[], Awaitable[_Result]]) -> _Result:
        return await self._outage.call_async(command, self._make_groups)

    async def _make_groups(self) -> None:
        for stream, group in self._keys.consumer_groups:
            with may_exist():
                await self._client.xgroup_create(stream, group, id="0", mkstream=True)
