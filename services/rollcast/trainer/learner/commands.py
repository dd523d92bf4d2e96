"""Commands from rank 0 to the other ranks, over a key-value store on CPU.

    rank 0                                       rank r         keys, n = 0, 1, 2, ...
    send(kind, bodies) - chunks, then header ->  receive()      r/n/0..r/n/c-1  chunks of the body
      own part of the collective        <->      its part       r/n             kind, chunks, bytes
    send(...)                                    receive()      deleted by their reader, r/n last
    take_reply(key)                     <-       reply()        reply/key
    stop_asked()                        <-       ask_to_stop()  stop-asked

A rank asks the store for its next command again and again, for as long as it takes: rank 0 may wait
for rollouts for hours, and a collective must not. It does not use the store's own wait, because
torch warns about each that ends without the key. If rank 0's store is gone the question raises and
the process ends. If rank 0 is frozen torch's question has no deadline: a thread ends the process.
"""

import math
import os
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from torch.distributed import Store  # type: ignore[attr-defined]

from rollcast.config.errors import EXIT_FAILED
from rollcast.telemetry.logging import get_logger

CHUNK_BYTES = 4 << 20
"""Stays below the largest value that the store accepts (8 MiB)."""
MAX_POLL_SECONDS = 0.05
"""Longest pause between two questions, each of which takes 10 microseconds on one machine."""
STOP_ASKED = "stop-asked"
HEADER = struct.Struct("<BIQ")
log = get_logger()


class CommandKind(IntEnum):
    STOP = 0
    UPDATE = 1
    STAGE = 2
    SAVE = 3
    RESTORE = 4
    EXPORT = 5
    LANE = 6
    TAKE_WEIGHTS = 7
    GATHER = 8


@dataclass(frozen=True, slots=True)
class RankCommand:
    kind: CommandKind
    body: bytes = b""


class CommandSender:
    """Rank 0's end."""

    def __init__(self, store: Store, world_size: int) -> None:
        self.store = store
        self.followers = range(1, world_size)
        self.num_sent = 0
        self._sending = threading.Lock()

    def send(self, kind: CommandKind, body: bytes | Mapping[int, bytes] = b"") -> None:
        """Queue a command for every other rank, with one body for all or one for each.

        Thread-safe; does not wait.
        """
        # All ranks must see the commands of two threads in the same order.
        with self._sending:
            for rank in self.followers:
                data = body if isinstance(body, bytes) else body[rank]
                chunks = [
                    data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)
                ]
                for index, chunk in enumerate(chunks):
                    self.store.set(f"{rank}/{self.num_sent}/{index}", chunk)  # type: ignore[arg-type]
                # Last: a rank that sees the header finds all chunks.
                header = HEADER.pack(kind, len(chunks), len(data))
                self.store.set(f"{rank}/{self.num_sent}", header)  # type: ignore[arg-type]
            self.num_sent += 1

    def wait_received(self, seconds: float) -> bool:
        """Wait until every other rank holds the last command;
        False = one did not take it in time.
        """
        deadline = time.monotonic() + seconds
        waiting = [f"{rank}/{self.num_sent - 1}" for rank in self.followers]
        while waiting := [key for key in waiting if self.store.check([key])]:
            if time.monotonic() > deadline:
                return False
            time.sleep(MAX_POLL_SECONDS)
        return True

    def take_reply(self, key: str) -> bytes | None:
        """A rank's reply under this key, which is removed; None = none so far."""
        name = f"reply/{key}"
        if not self.store.check([name]):
            return None
        reply = bytes(self.store.get(name))
        self.store.delete_key(name)
        return reply

    def stop_asked(self) -> bool:
        return bool(self.followers) and self.store.check([STOP_ASKED])


class CommandReceiver:
    """The end of one other rank."""

    def __init__(self, store: Store, rank: int, silence_seconds: float | None = None) -> None:
        """silence_seconds: ends this process if rank 0's store answers nothing for this long."""
        self.store = store
        self.rank = rank
        self.num_received = 0
        self._num_answers = 0
        self._is_asking = False
        if silence_seconds is not None:
            threading.Thread(target=self._watch, args=(silence_seconds,), daemon=True).start()

    def receive(self, meanwhile: Callable[[], None] = lambda: None) -> RankCommand:
        """Wait for the next command, without deadline; `meanwhile` is called before each question.

        Raises DistNetworkError when the store is gone.
        """
        self._is_asking = True
        try:
            return self._receive(meanwhile)
        finally:
            self._is_asking = False

    def _receive(self, meanwhile: Callable[[], None]) -> RankCommand:
        key = f"{self.rank}/{self.num_received}"
        started_at = time.monotonic()
        meanwhile()
        while not self.store.check([key]):
            self._num_answers += 1
            waited = time.monotonic() - started_at
            # The pause is a share of the time waited so far, so that a command of short steps is
            # noticed at most 5 % late; below a millisecond it would keep a core busy.
            time.sleep(min(MAX_POLL_SECONDS, max(0.001, 0.05 * waited)))
            meanwhile()
        kind, num_chunks, num_bytes = HEADER.unpack(bytes(self.store.get(key)))
        body = b"".join(self._take(f"{key}/{index}") for index in range(num_chunks))
        assert len(body) == num_bytes
        # Last: `wait_received` waits for the end of this key.
        self.store.delete_key(key)
        self.num_received += 1
        return RankCommand(CommandKind(kind), body)

    def reply(self, key: str, body: bytes) -> None:
        """Replace the reply under this key, at most 8 MiB."""
        self.store.set(f"reply/{key}", body)  # type: ignore[arg-type]

    def ask_to_stop(self) -> None:
        self.store.set(STOP_ASKED, b"1")  # type: ignore[arg-type]

    def _take(self, key: str) -> bytes:
        value = bytes(self.store.get(key))
        self.store.delete_key(key)
        self._num_answers += 1
        return value

    def _watch(self, silence_seconds: float) -> None:
        # Looks are counted, not seconds: a process that was frozen itself has heard nothing
        # meanwhile.
        num_looks = max(2, math.ceil(silence_seconds))
        num_silent = 0
        num_answers = self._num_answers
        while num_silent < num_looks:
            time.sleep(silence_seconds / num_looks)
            is_silent = self._is_asking and self._num_answers == num_answers
            num_silent = num_silent + 1 if is_silent else 0
            num_answers = self._num_answers
        log.error("rank 0 does not answer; this rank ends", silent_seconds=silence_seconds)
        # torch's call cannot be interrupted, and a regular exit would wait for it.
        os._exit(EXIT_FAILED)
