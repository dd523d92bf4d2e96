"""Ports of one machine: those that the run file names, and free ones for services that others must
find.
"""

import contextlib
import itertools
import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.connections.http import listen
from rollcast.local.monitor import HOST as PROMETHEUS_HOST

KERNELS_CHOICE = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""First and last port that the kernel hands out by itself; on Linux 32768 to 60999 by default."""
MAX_NUM_ATTEMPTS = 100
MAX_PORT = 65_535
_EVERY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104  # compared with, never bound
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class NamedPort:
    """A port that the run file gives to one process of this machine."""

    setting: str
    host: str
    number: int
    is_ours: bool = True
    """False: a service that is there already listens on it."""
    index: int = 0
    """Number of the process, if several use consecutive ports that begin with the setting's."""

    @property
    def in_words(self) -> str:
        if not self.is_ours:
            return f"{self.setting}, where a service of this machine listens,"
        return f"{self.setting} + {self.index}" if self.index else self.setting

    def meets(self, other_port: "NamedPort") -> bool:
        """Whether both processes would listen on one port of one address."""
        hosts = {
            "127.0.0.1" if host == "localhost" else host for host in (self.host, other_port.host)
        }
        return self.number == other_port.number and (
            len(hosts) == 1 or not hosts.isdisjoint(_EVERY_ADDRESS)
        )


def ports_below(range_file: Path) -> range:
    """The ports, at most 10,000, below those that the kernel assigns; empty if hardly any are left.

    No connection and no server at port 0 takes one between its choice and its service's start,
    which may be a minute later.
    """
    end = 30_000
    with contextlib.suppress(OSError):
        end = min(end, int(range_file.read_text().split()[0]))
    # Ports below are for the superuser
    ports = range(max(1_025, end - 10_000), end)
    # Fewer would collide with other runs
    return ports if len(ports) >= 1_000 else range(0)


PORTS = ports_below(KERNELS_CHOICE)
_candidates = itertools.cycle(random.SystemRandom().sample(PORTS, len(PORTS)))
"""One order per process, so that none is given twice and two processes seldom choose the same."""
_kept: dict[str, socket.socket] = {}
"""Sockets that `keep_port` holds, by name."""


def free_port(host: str) -> int:
    """A port at which `host` can listen. Raises UserError if it cannot listen at all."""
    for port in itertools.islice(_candidates, MAX_NUM_ATTEMPTS - 1):
        try:
            listen(host, port, setting="port").close()
        except UserError:
            continue
        return port
    with listen(host, 0, setting="port") as listener:
        return int(listener.getsockname()[1])


def keep_port(host: str, port: int) -> bool:
    """Take a port for this process until it ends, although its service listens later; False =
    another run has taken it.

    A socket of that name in Linux's abstract namespace stands for the port: the kernel removes it
    with its process.
    """
    name = f"\0rollcast-port-{host}-{port}"
    if name not in _kept:
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            mark.bind(name)
        except OSError:
            mark.close()
            return False
        _kept[name] = mark
    return True


def named_ports(config: RunConfig, *, monitor: bool = False) -> list[NamedPort]:
    """Each generator of this machine takes the next one from generator.http_port on.

    `monitor`: a Prometheus is started as well.
    """
    grader = config.grader.port if config.tasks.grading.sandbox == "remote" else 0
    redis = config.redis.port if config.redis.socket is None else 0
    first_port = config.generator.http_port
    bind = config.http.bind
    prometheus = config.local.prometheus_port if monitor else 0
    ports = [
        NamedPort("redis.port", config.redis.host, redis, is_ours=False),
        NamedPort("grader.port", config.grader.host, grader, is_ours=False),
        *(
            NamedPort("generator.http_port", bind, first_port + index, index=index)
            for index in range(config.local.generators if first_port else 0)
        ),
        NamedPort("rpc.port", config.rpc.bind, config.rpc.port),
        NamedPort("trainer.http_port", bind, config.trainer.http_port),
        NamedPort("forecaster.http_port", config.forecaster.bind, config.forecaster.http_port),
        NamedPort("local.prometheus_port", PROMETHEUS_HOST, prometheus),
    ]
    return [port for port in ports if port.number and (port.is_ours or port.host in _THIS_MACHINE)]


def check_named_ports(ports: Sequence[NamedPort]) -> None:
    """Raise UserError for two processes with one port, and for a port that does not exist.

    Nothing is bound.
    """
    checked_ports: list[NamedPort] = []
    for port in ports:
        if port.number > MAX_PORT:
            first_port = port.number - port.index
            generators = sum(other_port.setting == port.setting for other_port in ports)
            raise UserError(
                f"{port.setting} = {first_port}: each of local.generators = {generators} takes the "
                f"next port, and {MAX_PORT} is the last; lower one of the two"
            )
        first = next(
            (earlier_port for earlier_port in checked_ports if port.meets(earlier_port)), None
        )
        if first is not None:
            raise UserError(
                f"{port.in_words} = {port.number}: {first.in_words} has the same port; "
                "give each its own, or 0 for a free one"
            )
        checked_ports.append(port)


def check_free_ports(ports: Sequence[NamedPort]) -> None:
    """Listen on every named port for a moment. Raises UserError if another program has one.

    Those that `check_named_ports` refuses are left to it.
    """
    checked_ports: list[NamedPort] = []
    with contextlib.ExitStack() as listeners:
        for port in ports:
            if (
                port.is_ours
                and port.number <= MAX_PORT
                and not any(port.meets(earlier_port) for earlier_port in checked_ports)
            ):
                listeners.enter_context(listen(port.host, port.number, setting=port.setting))
            checked_ports.append(port)


def can_have(ports: Sequence[NamedPort], setting: str, host: str, number: int) -> bool:
    """Whether the process of `setting` could listen there: no other setting gives that port, no
    program has it.
    """
    port = NamedPort(setting, host, number)
    if any(port.meets(other_port) for other_port in ports if other_port.setting != setting):
        return False
    try:
        listen(host, number, setting=setting).close()
    except UserError:
        return False
    return True
