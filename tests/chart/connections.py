"""Who of a local cluster's pods is connected to whom."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import NamedTuple

import psutil

from tests.chart.local_cluster import LocalCluster

PAUSE_SECONDS = 1.0


class Connection(NamedTuple):
    """By the roles of its ends; `port` of the one that listens."""

    source: str
    target: str
    port: int


class Watch:
    """`with Watch(cluster) as watch`: looks every second; what lives shorter it may miss."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.seen: set[Connection] = set()
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connections")

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            self._look()

    def _look(self) -> None:
        """Both ends of a connection are here, whatever addresses it uses: each is a socket of some
        pod's process.
        """
        listening: dict[str, set[int]] = {}
        ends: dict[tuple[tuple[str, int], tuple[str, int]], str] = {}
        for role, process in self._processes():
            try:
                sockets = process.net_connections("tcp")
            except psutil.Error:
                continue  # it has ended
            for socket in sockets:
                if socket.status == psutil.CONN_LISTEN:
                    listening.setdefault(role, set()).add(socket.laddr.port)
                elif socket.raddr:
                    here, there = ((end.ip, end.port) for end in (socket.laddr, socket.raddr))
                    ends[here, there] = role
        for (here, there), role in ends.items():
            other = ends.get((there, here))
            if other is not None and other != role and there[1] in listening.get(other, ()):
                self.seen.add(Connection(role, other, there[1]))

    def _processes(self) -> list[tuple[str, psutil.Process]]:
        found = []
        for pod in self._cluster.started():
            for started in list(pod.processes.values()):
                try:
                    process = psutil.Process(started.pid)
                    found += [
                        (pod.template.role, each)
                        for each in (process, *process.children(recursive=True))
                    ]
                except psutil.Error:
                    continue
        return found
