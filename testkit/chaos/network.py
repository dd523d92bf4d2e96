"""Proxies between the processes of a run, which delay, lose, hold or truncate what passes."""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import psutil

from testkit.weights.slow_network import SlowNetwork

PROXIED_HOST = "127.0.0.2"
"""A loopback address on which proxies have the same ports as the processes behind them."""
UNLIMITED_BYTES_PER_SECOND = 1e12


@dataclass(eq=False)
class FaultyProxy(SlowNetwork):
    """Forwards until `mode` names a fault; counts the chunks that it struck."""

    round_trip_seconds: float = 0.0
    bytes_per_second: float = UNLIMITED_BYTES_PER_SECOND
    mode: str = ""
    num_struck: int = 0
    _chance: random.Random = field(default_factory=lambda: random.Random(0))

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        data = await super()._read(reader)
        if not data or not self.mode:
            return data
        self.num_struck += 1
        match self.mode:
            case "delay":
                # A congested link: many times a datacentre's round trip
                await asyncio.sleep(self._chance.uniform(0.1, 1.0))
            case "loss":
                # Linux sends a lost segment again after 0.2 s, then after twice as long
                seconds = 0.2
                while self._chance.random() < 0.3:
                    await asyncio.sleep(seconds)
                    seconds *= 2
            case "truncation":
                asyncio.get_running_loop().call_later(0.05, self._abort_all)
                return data[: len(data) // 2] or data
            case "half-open":
                # Until `finish` breaks the connection; longer than any fault
                await asyncio.sleep(3600.0)
        return data

    def begin(self, mode: str) -> None:
        self.num_struck = 0
        self.mode = mode

    def finish(self) -> None:
        """Forward again; a half-open connection is never resumed."""
        was_silent = self.mode == "half-open"
        self.mode = ""
        if was_silent:
            self.cut()

    def _abort_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()


class Network:
    """The proxies of a run, by pair. A pair may have several, of which all are struck."""

    def __init__(self) -> None:
        self.pairs: dict[str, list[FaultyProxy]] = {}
        self._opened = ExitStack()
        self._mirrored: set[int] = set()

    def open(self, pair: str, port: int, *, is_mirror: bool = True) -> int:
        """Returns the proxy's port: the same one on PROXIED_HOST, or a free one on 127.0.0.1."""
        proxy = FaultyProxy(port)
        if is_mirror:
            proxy.bind = PROXIED_HOST
            proxy.bind_port = port
            self._mirrored.add(port)
        proxy_port = self._opened.enter_context(proxy.opened())
        self.pairs.setdefault(pair, []).append(proxy)
        return proxy_port

    def mirror_listeners(self, pair: str, process: psutil.Process) -> None:
        """Open a proxy for each new port on which the process listens."""
        with suppress(psutil.Error, OSError):
            for connection in process.net_connections(kind="tcp4"):
                is_listener = connection.status == psutil.CONN_LISTEN
                if is_listener and connection.laddr.ip == "127.0.0.1":
                    port = connection.laddr.port
                    if port not in self._mirrored:
                        self.open(pair, port)

    def close(self) -> None:
        self._opened.close()
