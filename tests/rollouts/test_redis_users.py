"""The Redis users of the roles on real servers: every other test of this folder works with them, so
here is what they may not do.
"""

from __future__ import annotations

import re
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import pytest
from pydantic import SecretStr
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, ResponseError
from redis.retry import Retry

from rollcast.config.errors import UserError
from rollcast.connections.redis import connect
from rollcast.rollouts import (
    redis_generator_queue,
    redis_operator_queue,
    redis_trainer_queue,
)
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.keys import Keys
from rollcast.rollouts.redis_streams import script_source
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from rollcast.rollouts.redis_users import COMMANDS, Role, permissions
from testkit.rollouts.examples import make_task
from testkit.rollouts.servers import Server

MODULES = {"trainer": redis_trainer_queue, "generator": redis_generator_queue}
CLIENT_CALLS = {
    "register_script": {"evalsha", "script|load"},
    "xgroup_create": {"xgroup|create"},
    "xpending_range": {"xpending"},
    "close": set(),
    "aclose": set(),
}
"""Methods of redis-py that do not have the name of their command."""
FORBIDDEN = """CONFIG GET dir | CONFIG SET dir /tmp | ACL LIST | ACL SETUSER default on nopass
FLUSHALL | FLUSHDB | KEYS * | SCAN 0 | RANDOMKEY | DEBUG SLEEP 0 | SHUTDOWN NOSAVE | MODULE LIST
SCRIPT FLUSH | SCRIPT KILL | EVAL return(1) 0 | CLIENT LIST | CLIENT KILL 1.2.3.4:5 | MONITOR
REPLICAOF 1.2.3.4 5 | SAVE | BGSAVE | BGREWRITEAOF | MIGRATE 1.2.3.4 5 k 0 1 | SWAPDB 0 1 | SELECT 1
SLOWLOG GET | LATENCY RESET | SUBSCRIBE c | PUBLISH c m | SET {key} v | GET {key} | DUMP {key}
RESTORE {key} 0 v | SORT {key} | XGROUP DESTROY {key} g | XTRIM {key} MAXLEN 0"""
WRITES = (
    "HSET {key} a b | HDEL {key} a | DEL {key} | XADD {key} * a b | EVALSHA 0 0 | RENAME {key} k"
)


def listed(text: str, key: str) -> list[list[str]]:
    return [line.format(key=key).split() for line in re.split(r" \| |\n", text)]


@pytest.mark.parametrize("role", ["trainer", "generator"])
def test_a_role_has_exactly_the_commands_that_its_code_sends(role: Role) -> None:
    # An operator has the rights of the process whose settings he gives.
    modules = (MODULES[role], redis_operator_queue)
    source = "".join(Path(module.__file__ or "").read_text() for module in modules)
    scripts = {file.name for file in resources.files("rollcast.rollouts").joinpath("lua").iterdir()}
    names = [name for name in re.findall(r'"(\w+)"', source) if f"{name}.lua" in scripts]
    assert len(set(names)) > 5
    commands = {"ping"}  # before a connection is used again
    for call in re.findall(r"_client\.(\w+)", source):
        commands |= CLIENT_CALLS.get(call, {call})
    for name in names:
        calls = re.findall(r"redis\.p?call\('(\w+)'(?:, '(\w+)')?", script_source(name).lower())
        commands |= {
            f"{command}|{word}" if command in ("xgroup", "xinfo") else command
            for command, word in calls
        }
    assert sorted(commands) == sorted(COMMANDS[role])


@pytest.mark.parametrize("role", COMMANDS)
def test_no_role_administers_the_server(redis_server: Server, run_name: str, role: Role) -> None:
    key = Keys(run_name).state
    with connect(redis_server.settings_of(role)) as client:
        for command in listed(FORBIDDEN, key) + (listed(WRITES, key) if role == "reader" else []):
            # Redis 7 refuses DEBUG to all users
            with pytest.raises(ResponseError, match=r"no permissions|DEBUG command not allowed"):
                client.execute_command(*command)
        assert client.ping()


@pytest.mark.parametrize("role", ["trainer", "generator"])
def test_a_script_may_do_no_more_than_its_sender(
    redis_server: Server, run_name: str, role: Role
) -> None:
    with redis_server.client() as administrator, connect(redis_server.settings_of(role)) as client:
        administrator.set("kept", "value")
        for line in ("'FLUSHALL'", "'CONFIG', 'GET', 'dir'", "'DEL', 'kept'", "'GET', KEYS[1]"):
            digest = client.script_load(f"return redis.call({line})")
            with pytest.raises(
                ResponseError, match=r"(?i)permission|can't (run|access)|not allowed"
            ):
                client.evalsha(digest, 1, Keys(run_name).state)
        assert administrator.get("kept") == b"value"


def test_a_role_reaches_the_keys_of_its_run_alone(redis_server: Server, run_name: str) -> None:
    scoped = redis_server.settings_of("trainer").model_copy(update={"scope": "rl/one"})
    mine, other = Keys(run_name, "rl/one"), Keys(run_name, "rl/other")
    rules = permissions("trainer", mine.pattern).split()
    with redis_server.client() as administrator:
        administrator.execute_command("ACL", "SETUSER", "mine", "reset", "on", ">secret", *rules)
    settings = scoped.model_copy(update={"username": "mine", "password": SecretStr("secret")})
    queue = RedisTrainerQueue(settings, run_name)
    assert queue.dispatch([make_task(1)]) == [1]
    queue.close()
    queue = RedisTrainerQueue(settings.model_copy(update={"scope": "rl/other"}), run_name)
    with pytest.raises(UserError, match=r"redis\.username: .*those of its role"):
        queue.dispatch([make_task(1)])
    queue.close()
    with connect(settings) as client, pytest.raises(NoPermissionError):
        client.hgetall(other.inflight)


def test_a_script_without_end_is_waited_for(durable_server: Server) -> None:
    """The server itself is what such a script stops; nothing is lost when it goes on."""
    settings = durable_server.settings_of("trainer")
    trainer = RedisTrainerQueue(settings, "stopped", patience_seconds=0.5)
    trainer.dispatch([make_task(1)])
    hostile = Redis(
        port=durable_server.port,
        username="generator",
        password="generator",
        socket_timeout=60,
        retry=Retry(NoBackoff(), 0),
    )
    with hostile, durable_server.client() as administrator, ThreadPoolExecutor(1) as thread:
        administrator.config_set("lua-time-limit", 50)
        script = thread.submit(hostile.evalsha, hostile.script_load("while true do end"), 0)
        deadline = time.monotonic() + 60
        while answers(administrator):
            assert time.monotonic() < deadline
        try:
            with pytest.raises(QueueAway, match="BUSY"):
                trainer.dispatch([make_task(2)])
        finally:
            administrator.script_kill()
        assert isinstance(script.exception(timeout=60), ResponseError)
    assert trainer.dispatch([make_task(2)]) == [2]
    assert trainer.outstanding().sequences == {1, 2}
    trainer.close()


def answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except ResponseError:
        return False


def test_the_lines_of_the_documents_make_these_users(redis_server: Server) -> None:
    text = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text()
    lines = re.findall(r"redis-cli (ACL SETUSER .*)", text.replace("\\\n", " "))
    pattern = Keys("my-run", "rl/my-run").pattern
    for role, line in zip(COMMANDS, lines, strict=True):
        command = shlex.split(line)
        assert command[2:5] == [f"my-{role}", "reset", "on"]
        assert command[6:] == permissions(role, pattern).split()
        with redis_server.client() as administrator:
            assert administrator.execute_command(*command)


def test_a_reader_sees_a_run(redis_server: Server, run_name: str) -> None:
    keys = Keys(run_name)
    queue = RedisTrainerQueue(redis_server.settings_of("trainer"), run_name)
    queue.dispatch([make_task(1)])
    queue.close()
    with connect(redis_server.settings_of("reader")) as client:
        assert client.hlen(keys.inflight) == client.xlen(keys.tasks) == 1
        assert client.xrevrange(keys.tasks)
        assert client.type(keys.state) == b"none"
        assert "redis_version" in client.info()
        assert client.latency_latest() == [], "the exporter asks for it"
