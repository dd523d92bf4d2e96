"""A real Redis server that speaks TLS only: both clients, and who is not let in."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcast.config.connections import TLS, Redis
from rollcast.config.errors import UserError
from rollcast.connections.redis import RedisAway, connect, connect_async
from rollcast.local.ports import free_port
from testkit.connections.certificates import make_certificates
from testkit.rollouts.servers import find_server


@pytest.fixture
def secure_redis(tmp_path: Path) -> Iterator[Redis]:
    """The settings that reach it; skips where no server with TLS is installed."""
    tls = make_certificates(tmp_path / "ours")
    settings = Redis(port=free_port("127.0.0.1"), tls=tls, timeout_seconds=2.0)
    arguments = [
        "--port",
        "0",
        "--tls-port",
        str(settings.port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
    ]
    files = ["--tls-cert-file", tls.certificate, "--tls-key-file", tls.private_key]
    files += ["--tls-ca-cert-file", tls.certificate_authority]
    command = [find_server("7"), *arguments, *map(str, files), "--dir", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 20.0
        while True:
            if server.poll() is not None:
                output, _ = server.communicate()
                if "Bad directive" in output or "without TLS" in output:
                    pytest.skip("this redis-server was built without TLS")
                pytest.fail(output)
            try:
                with connect(settings) as client:
                    client.ping()
                break
            except RedisAway:
                assert time.monotonic() < deadline, "the Redis server did not start"
                time.sleep(0.05)
        yield settings
    finally:
        server.terminate()
        server.communicate(timeout=20.0)


async def test_tls_carries_commands_and_strangers_stay_out(
    secure_redis: Redis, tmp_path: Path
) -> None:
    with connect(secure_redis) as client:
        assert client.set("key", b"value")
    async with connect_async(secure_redis) as client:
        assert await client.get("key") == b"value"
    stranger = make_certificates(tmp_path / "theirs")
    only_ours = TLS(
        certificate_authority=secure_redis.tls.certificate_authority if secure_redis.tls else None
    )
    for other in (stranger, only_ours, TLS(), None):
        with (
            connect(secure_redis.model_copy(update={"tls": other})) as refused,
            pytest.raises(RedisAway),
        ):
            refused.ping()


@pytest.mark.parametrize("file", ["certificate_authority", "certificate", "private_key"])
def test_a_file_of_redis_tls_that_cannot_be_read_is_named_and_not_waited_for(
    tmp_path: Path, file: str
) -> None:
    tls = make_certificates(tmp_path).model_copy(update={file: tmp_path / "absent.pem"})
    for make in (connect, connect_async):
        with pytest.raises(UserError, match=rf"redis\.tls\.{file} = \S*absent\.pem.*No such file"):
            make(Redis(tls=tls))
