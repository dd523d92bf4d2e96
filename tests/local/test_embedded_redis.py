"""The embedded Redis of a run, as a real server: who gets in, and what they may do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr
from redis.exceptions import NoPermissionError

from rollcast.config.connections import Redis
from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.connections.redis import connect, connect_async
from rollcast.local import preflight
from rollcast.local.embedded_redis import SOCKET, find_server, wait_until_ready, write_server_config
from rollcast.local.services import service_specs
from rollcast.local.up import with_secrets
from rollcast.rollouts.keys import Keys
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from testkit.rollouts.examples import make_task

NOBODY = 65_534
TRAINER_PASSWORD = "the trainer's own"
LONGEST_SOCKET_PATH = 107
"""Bytes; sun_path of unix(7) has 108, with a zero at the end."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def started(folder: Path, **redis_settings: Any) -> RunConfig:
    """The settings as `rollcast up` resolves them."""
    config = parse_run_config(
        {
            "run": "r",
            "folder": str(folder),
            "model": {"path": "m"},
            "redis": {"port": 0, **redis_settings},
        },
        source="test",
    )
    return with_secrets(preflight.resolve_ports(config), embed_redis=True, embed_grader=False)


def written(config: RunConfig) -> Path:
    return write_server_config(
        config.redis, config.run, config.run_folder / "redis", TRAINER_PASSWORD
    )


def as_trainer(settings: Redis) -> Redis:
    """`settings` with the credentials that `rollcast up` gives the trainer's process."""
    secret = SecretStr(TRAINER_PASSWORD)
    return settings.model_copy(update={"username": "trainer", "password": secret})


@contextmanager
def serving(config: RunConfig) -> Iterator[Redis]:
    server = subprocess.Popen([str(find_server()), str(written(config))], stdout=subprocess.DEVNULL)
    try:
        wait_until_ready(config.redis)
        yield config.redis
    finally:
        server.terminate()
        server.wait(timeout=30)


@pytest.fixture(params=["socket", "port"], scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Redis]:
    """Reached by its socket, or by TCP, as it is if the run folder's path is too long for a socket.

    One server for all tests, which change nothing in it but a key and a stream.
    """
    depth = 0 if request.param == "socket" else LONGEST_SOCKET_PATH
    base = tmp_path_factory.mktemp("served")
    base.chmod(0o755)
    with serving(started(base / ("d" * depth) / "runs")) as settings:
        assert (settings.socket is None) == (request.param == "port")
        yield settings


def is_refused(settings: Redis) -> bool:
    with closing(connect(settings)) as client:
        try:
            client.ping()
        except redis.RedisError:
            return True
    return False


def test_without_the_password_nothing_is_answered(served: Redis) -> None:
    assert not is_refused(served)
    assert is_refused(served.model_copy(update={"password": None}))
    assert is_refused(served.model_copy(update={"password": SecretStr("wrong")}))


def test_over_a_socket_no_port_is_open(tmp_path: Path) -> None:
    with serving(started(tmp_path)) as settings:
        assert settings.socket == tmp_path / "r" / "redis" / SOCKET
        assert is_refused(settings.model_copy(update={"socket": None}))


TRY_THE_DOORS = """
import os, socket, sys
from pathlib import Path
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
folder = Path(sys.argv[1])
for file in (folder / "redis.conf", folder / "appendonly.aof", folder.parent / "run.json"):
    try:
        print("read", file, file.read_bytes()[:10])
    except PermissionError:
        pass
try:
    socket.socket(socket.AF_UNIX).connect(str(folder / "redis.sock"))
    print("connected")
except PermissionError:
    pass
print("tried")
"""


@as_root
def test_another_user_gets_in_neither_by_the_socket_nor_by_the_files() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        config = started(Path(name))
        write_resolved(config, config.run_folder / "run.json")
        with serving(config):
            command = [
                sys.executable,
                "-I",
                "-S",
                "-c",
                TRY_THE_DOORS,
                str(config.run_folder / "redis"),
            ]
            found = {}
            for user in (0, NOBODY):
                other = subprocess.run(
                    [*command, str(user)], capture_output=True, text=True, timeout=120
                )
                found[user] = other.stdout.split()
                assert other.stdout.endswith("tried\n"), other.stderr
    assert "connected" in found[0]
    assert found[NOBODY] == ["tried"]


def test_what_up_starts_gives_the_trainer_alone_the_trainers_password(tmp_path: Path) -> None:
    config = started(tmp_path)
    write_resolved(config, config.run_folder / "run.json")
    specs = service_specs(config, config.run_folder / "run.json", embed_redis=True, resume=False)
    environments = {
        spec.name: spec.commands[0].environment() for spec in specs if spec.name != "redis"
    }
    trainer = environments.pop("trainer")
    password = trainer["ROLLCAST_REDIS_PASSWORD"]
    assert (trainer["ROLLCAST_REDIS_USERNAME"], len(password)) == ("trainer", 43)
    assert "generator-0" in environments
    assert all(password not in environment.values() for environment in environments.values())
    files = [path.read_text() for path in config.run_folder.rglob("*.*") if path.is_file()]
    assert len(files) > 1
    assert not any(password in text for text in files), "the server knows its digest"


def test_each_role_gets_in_with_its_own_password_and_none_administers(served: Redis) -> None:
    """What no role may do: tests/rollouts/test_redis_users.py."""
    assert served.username == "generator"
    assert is_refused(served.model_copy(update={"username": "trainer"}))
    assert is_refused(served.model_copy(update={"username": None}))
    reader = served.model_copy(update={"username": "reader"})
    for settings in (served, as_trainer(served), reader):
        with closing(connect(settings)) as client:
            assert client.ping()
            with pytest.raises(NoPermissionError):
                client.config_get("dir")
            with pytest.raises(NoPermissionError):
                client.hget("rollcast:{other}:state", "incarnation")


def test_scripts_and_streams_work_over_both_clients(served: Redis) -> None:
    queue = RedisTrainerQueue(as_trainer(served), "r")
    assert queue.dispatch([make_task(1), make_task(2)]) == [1, 2]
    assert set(queue.outstanding().waiting) == {1, 2}
    queue.close()

    async def ask() -> Any:
        async with connect_async(served) as client:
            return await client.xrange(Keys("r").tasks)

    assert len(asyncio.run(ask())) == 2


def test_data_is_there_after_a_restart_with_another_password(tmp_path: Path) -> None:
    passwords = set()
    for count in (1, 2):
        config = started(tmp_path)
        assert config.redis.password is not None
        passwords.add(config.redis.password.get_secret_value())
        with serving(config) as settings, closing(connect(settings)) as client:
            assert client.hincrby(Keys("r").state, "counter", 1) == count
    assert len(passwords) == 2


def test_a_folder_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "r" / "redis"
    folder.mkdir(parents=True, mode=0o755)
    (folder / SOCKET).touch()  # left by a server that was killed
    with serving(started(tmp_path)) as settings:
        assert settings.socket is not None
    assert folder.stat().st_mode & 0o077 == 0


def test_an_address_that_other_machines_reach_stays_on_tcp(tmp_path: Path) -> None:
    config = started(tmp_path, host="0.0.0.0")
    assert config.redis.socket is None
    assert config.redis.password is not None


def test_a_killed_server_is_reached_by_its_socket_again(tmp_path: Path) -> None:
    """As the supervisor starts it again: with the same configuration, the socket's file still
    there.
    """
    config = started(tmp_path)
    path = written(config)
    for _ in range(2):
        server = subprocess.Popen([str(find_server()), str(path)], stdout=subprocess.DEVNULL)
        try:
            wait_until_ready(config.redis)
        finally:
            server.kill()
            server.wait(timeout=30)
        assert config.redis.socket is not None
        assert config.redis.socket.exists()
