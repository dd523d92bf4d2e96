"""Real gRPC servers and channels over loopback: token, certificates, IPv6."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic import SecretStr

from rollcast.config.connections import TLS, Rpc
from rollcast.config.errors import UserError
from rollcast.connections.grpc import call_metadata, open_channel_async, start_server
from rollcast.connections.silent_calls import MAX_SILENT_CALLS
from testkit.connections.certificates import lock_key, make_certificates


def register_echo(server: Any) -> None:
    echo: Any = grpc.unary_unary_rpc_method_handler(lambda request, _: request)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("test.Echo", {"Say": echo}),)
    )


@contextmanager
def serving(rpc: Rpc, **options: Any) -> Iterator[Rpc]:
    """An echo on a free port; yields the settings that reach it."""
    server, port = start_server(
        rpc.model_copy(update={"port": 0}), register_echo, setting="rpc.port", **options
    )
    try:
        yield rpc.model_copy(update={"port": port, "host": rpc.bind})
    finally:
        server.stop(grace=None).wait(10.0)


async def say(rpc: Rpc) -> bytes:
    async with open_channel_async(rpc) as channel:
        call: Any = channel.unary_unary("/test.Echo/Say")
        answer = await call(b"hello", metadata=call_metadata(rpc), timeout=10.0)
        assert isinstance(answer, bytes)
        return answer


async def refusal(rpc: Rpc) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await say(rpc)
    code = caught.value.code()
    assert isinstance(code, grpc.StatusCode)
    return code


async def test_tls_both_sides_show_a_certificate_and_the_token_is_still_demanded(
    tmp_path: Path,
) -> None:
    tls, stranger = make_certificates(tmp_path / "ours"), make_certificates(tmp_path / "theirs")
    with serving(Rpc(tls=tls, token=SecretStr("secret"))) as rpc:
        assert await say(rpc) == b"hello"
        assert (
            await refusal(rpc.model_copy(update={"token": SecretStr("wrong")}))
            is grpc.StatusCode.UNAUTHENTICATED
        )
        assert (
            await refusal(rpc.model_copy(update={"token": None})) is grpc.StatusCode.UNAUTHENTICATED
        )
        only_ours = TLS(certificate_authority=tls.certificate_authority)
        theirs_under_ours = stranger.model_copy(
            update={"certificate_authority": tls.certificate_authority}
        )
        for other in (stranger, only_ours, theirs_under_ours, None):
            assert (
                await refusal(rpc.model_copy(update={"tls": other})) is grpc.StatusCode.UNAVAILABLE
            )


async def test_without_an_authority_the_server_asks_nobody_for_a_certificate(
    tmp_path: Path,
) -> None:
    tls = make_certificates(tmp_path)
    own = tls.model_copy(update={"certificate_authority": None})
    with serving(Rpc(tls=own)) as rpc:
        assert (
            await say(
                rpc.model_copy(update={"tls": TLS(certificate_authority=tls.certificate_authority)})
            )
            == b"hello"
        )


async def test_ipv6_addresses_are_served_and_reached() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with serving(Rpc(bind="::1")) as rpc:
        assert await say(rpc) == b"hello"
    with serving(Rpc(bind="::")) as rpc:
        assert await say(rpc.model_copy(update={"host": "::1"})) == b"hello"


async def test_a_file_of_rpc_tls_that_cannot_be_used_is_named_by_both_sides(tmp_path: Path) -> None:
    tls, other = make_certificates(tmp_path / "a"), make_certificates(tmp_path / "b")
    (tmp_path / "junk.pem").write_text("junk")
    wrong: dict[str, dict[str, str | Path | None]] = {
        r"rpc\.tls\.certificate_authority = .*absent\.pem: .*No such file": {
            "certificate_authority": "absent.pem"
        },
        r"rpc\.tls\.certificate_authority = .*junk\.pem": {"certificate_authority": "junk.pem"},
        r"rpc\.tls\.certificate = .*absent\.pem, .*No such file": {"certificate": "absent.pem"},
        r"rpc\.tls\.certificate = .*junk\.pem": {"certificate": "junk.pem"},
        r"rpc\.tls\.private_key = .*key\.pem: cannot be used .*mismatch": {
            "private_key": other.private_key
        },
        r"without a password": {"private_key": lock_key(tls).private_key},
        r"rpc\.tls.*certificate and rpc\.tls\.private_key": {"private_key": None},
    }
    for message, change in wrong.items():
        files = {name: file and tmp_path / file for name, file in change.items()}
        rpc = Rpc(tls=tls.model_copy(update=files))
        with pytest.raises(UserError, match=message) as at_the_server:
            start_server(rpc, register_echo, setting="rpc.port")
        with pytest.raises(UserError, match=message) as at_the_client:
            await say(rpc)
        for caught in (at_the_server, at_the_client):
            assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"rpc\.tls: a server needs rpc\.tls\.certificate"):
        start_server(Rpc(tls=TLS()), register_echo, setting="rpc.port")


def test_a_certificate_that_only_grpc_refuses_is_not_told_as_a_port_in_use(tmp_path: Path) -> None:
    rpc = Rpc(port=0, tls=make_certificates(tmp_path, curve="secp256k1"))
    with pytest.raises(UserError, match=r"rpc\.tls\.certificate = .*: gRPC does not take it"):
        start_server(rpc, register_echo, setting="rpc.port")


@pytest.mark.parametrize("secure", [False, True])
def test_a_port_in_use_is_named_with_and_without_tls(tmp_path: Path, secure: bool) -> None:
    tls = make_certificates(tmp_path) if secure else None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UserError, match=rf"rpc\.port = {port}: 127\.0\.0\.1 cannot listen on it .*free port"
        ):
            start_server(Rpc(port=port, tls=tls), register_echo, setting="rpc.port")


def test_an_address_of_another_machine_is_not_told_as_a_port_in_use() -> None:
    with pytest.raises(
        UserError, match=r"rpc\.port = 0: 192\.0\.2\.1 .*bind an address of this machine"
    ):
        start_server(Rpc(bind="192.0.2.1", port=0), register_echo, setting="rpc.port")


def silent_calls(channel: Any, count: int) -> list[Any]:
    """Calls of the echo that are opened and carry no request; on the wire a call of one request is
    a stream of one.
    """
    return [channel.stream_unary("/test.Echo/Say")() for _ in range(count)]


async def test_calls_without_a_request_do_not_keep_others_waiting_and_are_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rollcast.connections.silent_calls.REQUEST_SECONDS", 2.0)
    with serving(Rpc(), max_calls=4) as rpc:
        async with open_channel_async(rpc) as channel:
            silent = silent_calls(channel, MAX_SILENT_CALLS + 100)
            assert await say(rpc) == b"hello"
            codes = await asyncio.wait_for(asyncio.gather(*(call.code() for call in silent)), 60.0)
            assert set(codes) == {grpc.StatusCode.CANCELLED}


async def test_without_the_token_a_call_is_refused_before_its_request() -> None:
    with serving(Rpc(token=SecretStr("secret")), secret_place="in the safe") as rpc:
        async with open_channel_async(rpc) as channel:
            (silent,) = silent_calls(channel, 1)
            assert await asyncio.wait_for(silent.code(), 60.0) is grpc.StatusCode.UNAUTHENTICATED
            details = await silent.details()
    assert "in the safe" in details


async def test_a_connection_without_a_call_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollcast.connections.grpc.IDLE_SECONDS", 2.0)
    with serving(Rpc()) as rpc:
        async with open_channel_async(rpc) as channel:
            await asyncio.wait_for(channel.channel_ready(), 60.0)
            await asyncio.wait_for(
                channel.wait_for_state_change(grpc.ChannelConnectivity.READY), 60.0
            )
            assert channel.get_state() is grpc.ChannelConnectivity.IDLE
        assert await say(rpc) == b"hello"
