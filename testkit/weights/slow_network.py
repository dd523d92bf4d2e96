"""A network between two programs of this machine: a proxy with a latency and a bandwidth."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

Result = TypeVar("Result")
BUFFERED_CHUNKS = 64
CHUNK_BYTES = 1 << 17


@dataclass(eq=False)
class SlowNetwork:
    """Forwards connections to `port`; `cut` breaks those that are open."""

    port: int
    round_trip_seconds: float
    bytes_per_second: float
    """Towards the client; all connections share it."""
    bind: str = "127.0.0.1"
    bind_port: int = 0
    """0 = a free one."""
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _free_at: float = 0.0

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Yields the port to connect to."""
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, name="slow-network", daemon=True)
        thread.start()
        server = self._call(asyncio.start_server(self._serve, self.bind, self.bind_port))
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            server.close()
            self._call(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)
            self._loop.close()

    def cut(self) -> int:
        """Break every open connection; returns how many there were."""

        async def abort() -> int:
            writers = list(self._writers)
            for writer in writers:
                writer.transport.abort()
            return len(writers)

        return self._call(abort())

    async def _end(self) -> None:
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        return await reader.read(CHUNK_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, server_writer}
        try:
            with suppress(asyncio.CancelledError):  # at `_end`, which waits for this task
                await asyncio.gather(
                    self._forward(reader, server_writer, lambda length: 0.0),
                    self._forward(server_reader, writer, self._sending_seconds),
                    return_exceptions=True,
                )
        finally:
            self._writers -= {writer, server_writer}
            writer.transport.abort()
            server_writer.transport.abort()

    def _sending_seconds(self, length: int) -> float:
        """How long from now until the shared line has sent these bytes too."""
        now_seconds = self._loop.time()
        self._free_at = max(now_seconds, self._free_at) + length / self.bytes_per_second
        return self._free_at - now_seconds

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        sending_seconds: Callable[[int], float],
    ) -> None:
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(BUFFERED_CHUNKS)

        async def read() -> None:
            data = b"-"
            while data:
                data = await self._read(reader)
                delay_seconds = sending_seconds(len(data)) + self.round_trip_seconds / 2
                await on_the_way.put((self._loop.time() + delay_seconds, data))

        reading = asyncio.ensure_future(read())
        try:
            while True:
                due, data = await on_the_way.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                if not data:
                    writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()
        finally:
            reading.cancel()
