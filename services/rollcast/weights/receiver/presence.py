"""What the trainer itself has seen of a generator process: how much of its own start-up time it may claim.

a generator's engine starts -- Starting(key), every few seconds --> seen
it announces itself with the time that nobody counted -----------> believed as far back as it was seen
"""

from __future__ import annotations

import asyncio
import math
import secrets
import threading
from contextlib import suppress

import grpc
import grpc.aio

from rollcast.config.errors import UserError
from rollcast.config.services import Rpc
from rollcast.connections.grpc import call_metadata, open_channel_async
from rollcast.wire import weights_pb2
from rollcast.wire.weights_pb2_grpc import WeightSyncStub

REPORT_SECONDS = 5.0
"""Interval of a starting generator's reports, and the deadline of one."""
LAPSE_SECONDS = 30.0
"""A process that is not heard of for longer counts as seen for the first time when it is heard of again."""
UNSEEN_SECONDS = 120.0
"""What a process may claim beyond that, once: it can report only when its modules are loaded, which on a busy machine
took 64 s."""
EARLY_SECONDS = 30.0
"""After the trainer's port opened: processes that were there before are heard of by then, and are believed."""
MAX_PROCESSES = 4_096
"""Remembered; for one more, that which was heard of longest ago is forgotten."""
MAX_KEY_BYTES = 64


def new_key() -> bytes:
    """Of this process: a secret between it and the trainer."""
    return secrets.token_bytes(16)


async def report_starting(rpc: Rpc, key: bytes) -> None:
    """Report to the trainer, as soon as there is one, that this process is there. Runs until it is cancelled.

    What the trainer or a certificate refuses is not reported here: the member's session meets it, too.
    """
    with suppress(UserError):
        await _report_on(rpc, key)


async def _report_on(rpc: Rpc, key: bytes) -> None:
    async with open_channel_async(rpc) as channel:
        stub = WeightSyncStub(channel)  # type: ignore[no-untyped-call]
        while True:
            with suppress(grpc.aio.AioRpcError):
                await stub.Starting(
                    weights_pb2.Presence(key=key),
                    metadata=call_metadata(rpc),
                    timeout=REPORT_SECONDS,
                    wait_for_ready=True,
                )
            await asyncio.sleep(REPORT_SECONDS)


class Sightings:
    """Since when each process has been seen, by its key. Thread-safe; the caller passes the time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._opened_at: float | None = None
        self._seen: dict[bytes, tuple[float, float]] = {}  # since when it is seen without a lapse, and last

    def open(self, now: float) -> None:
        """The trainer's port opens. Until then every claim is believed."""
        self._opened_at = now

    def note(self, key: bytes, now: float) -> None:
        """The process of this key was heard of."""
        if not 0 < len(key) <= MAX_KEY_BYTES:
            return
        with self._lock:
            is_early = self._opened_at is None or now - self._opened_at <= EARLY_SECONDS
            since, last = self._seen.pop(key, (-math.inf if is_early else now - UNSEEN_SECONDS, now))
            self._seen[key] = (since if now - last <= LAPSE_SECONDS else now, now)
            while len(self._seen) > MAX_PROCESSES:
                del self._seen[next(iter(self._seen))]

    def claim(self, key: bytes, now: float) -> float:
        """The moment from which a process that announces itself now may count its devices.

        The same time is not believed a second time.
        """
        if self._opened_at is None:
            return -math.inf
        with self._lock:
            self.note(key, now)
            since, _ = self._seen.get(key, (now - UNSEEN_SECONDS, now))
            self.count(key, now)
        return since

    def count(self, key: bytes, until: float) -> None:
        """The time of this process is counted until that moment."""
        with self._lock:
            if key in self._seen:
                self._seen[key] = (until, until)
