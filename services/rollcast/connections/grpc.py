"""gRPC channels and servers from configuration: token and TLS in one place, messages bounded."""

import hmac
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from rollcast.config.connections import TLS, Rpc
from rollcast.config.errors import UserError
from rollcast.connections.certificates import check_client, check_server
from rollcast.connections.http import in_url, listen
from rollcast.connections.silent_calls import MAX_SILENT_CALLS, SilentCalls

MAX_MESSAGE_BYTES = 64 << 20
"""A manifest of a large mixture-of-experts model names some 100,000 tensors: a few MiB."""
MAX_GRADING_BYTES = 24 << 20
"""A completion of at most 2**20 characters of four bytes, a reference of at most 16 MiB, and a
margin of 4 MiB."""
LONGEST_PAUSE_SECONDS = 2.0
"""Longest pause between a client's attempts to connect, so that a restarted server is found
soon."""

IDLE_SECONDS = 60.0
"""A connection without a call is closed after this time; a client opens a new one for its next
call."""

_AUTHORIZATION = "authorization"


def _options(max_message_bytes: int, *extra_options: tuple[str, int]) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        # A peer that does not answer, although its machine does, is given up after this time and up
        # to ten seconds more. A busy peer answers all the time, on gRPC's own threads.
        ("grpc.http2.ping_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.so_reuseport", 0),
        *extra_options,
    ]


def open_channel_async(settings: Rpc) -> grpc.aio.Channel:
    """A channel to `settings.host:port`; send `call_metadata(settings)` with every call.

    Raises UserError if a file of rpc.tls cannot be used.
    """
    channel: grpc.aio.Channel = _open(grpc.aio, settings, MAX_MESSAGE_BYTES)
    return channel


def open_channel(settings: Rpc, *, max_message_bytes: int) -> grpc.Channel:
    """A channel for threads, see `open_channel_async`."""
    channel: grpc.Channel = _open(grpc, settings, max_message_bytes)
    return channel


def _open(library: Any, settings: Rpc, max_message_bytes: int) -> Any:
    target = f"{in_url(settings.host)}:{settings.port}"
    options = _options(
        max_message_bytes,
        # Otherwise channels of one process share connections, and a pause that grows to two
        # minutes.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", int(1000 * LONGEST_PAUSE_SECONDS)),
        # 3 s for one attempt to connect: in spite of its name the option bounds the attempt, not
        # the pause
        ("grpc.min_reconnect_backoff_ms", 3_000),
    )
    if settings.tls is None:
        return library.insecure_channel(target, options=options)
    check_client(settings.tls, "rpc.tls")
    credentials = grpc.ssl_channel_credentials(
        _read(settings.tls.certificate_authority),
        _read(settings.tls.private_key),
        _read(settings.tls.certificate),
    )
    return library.secure_channel(target, credentials, options=options)


def call_metadata(settings: Rpc) -> list[tuple[str, str]]:
    """The token, if one is set, as metadata of a call."""
    return (
        [(_AUTHORIZATION, f"Bearer {settings.token.get_secret_value()}")] if settings.token else []
    )


def start_server(
    settings: Rpc,
    register: Callable[[grpc.Server], None],
    *,
    setting: str,
    max_calls: int = 256,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    secret_place: str | None = None,
) -> tuple[Any, int]:
    """Start a threaded server; returns it and the port it listens on.

    `secret_place`: the token's place, for the refusal of a caller without it. None = the refusal
    names no place. Raises UserError that names `setting` if the port is taken, or the file of
    rpc.tls that cannot be used.
    """
    interceptors: list[grpc.ServerInterceptor] = [SilentCalls()]
    if settings.token:
        interceptors.append(_TokenInterceptor(settings.token.get_secret_value(), secret_place))
    server = grpc.server(
        ThreadPoolExecutor(max_workers=max_calls + MAX_SILENT_CALLS, thread_name_prefix="rpc"),
        options=_options(
            max_message_bytes, ("grpc.max_connection_idle_ms", int(1000 * IDLE_SECONDS))
        ),
        interceptors=interceptors,
    )
    register(server)
    address = f"{in_url(settings.bind)}:{settings.port}"
    credentials = _server_credentials(settings.tls) if settings.tls else None
    try:
        port = (
            server.add_secure_port(address, credentials)
            if credentials
            else server.add_insecure_port(address)
        )
    except RuntimeError as error:
        # Raises the reason if the port is at fault.
        listen(settings.bind, settings.port, setting=setting).close()
        if settings.tls is None:
            raise UserError(
                f"{setting} = {settings.port}: gRPC cannot listen at {address}; choose another "
                "port, or bind by number"
            ) from error
        raise UserError(
            f"rpc.tls.certificate = {settings.tls.certificate}: gRPC does not take it, although "
            f"port {settings.port} "
            "is free; make it with an RSA key of 2048 bits or more, or a P-256 key"
        ) from error
    server.start()
    return server, port


def _server_credentials(tls: TLS) -> grpc.ServerCredentials:
    check_server(tls, "rpc.tls")
    assert tls.private_key is not None
    assert tls.certificate is not None
    authority = _read(tls.certificate_authority)
    pair = (tls.private_key.read_bytes(), tls.certificate.read_bytes())
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)


def _read(path: Path | None) -> bytes | None:
    return path.read_bytes() if path else None


class _TokenInterceptor(grpc.ServerInterceptor):
    """Refuses calls that do not carry the token."""

    def __init__(self, token: str, secret_place: str | None) -> None:
        self._expected = f"Bearer {token}".encode()
        sentence = "wrong or missing token; set the one of this service"
        if secret_place is not None:
            sentence += f", which is {secret_place}; only the user who started the run can read it"

        def refuse(_: Any, context: grpc.ServicerContext) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, sentence)

        # Does not wait for a request.
        self._refusal: Any = grpc.stream_stream_rpc_method_handler(refuse)

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        presented_token = dict(details.invocation_metadata).get(_AUTHORIZATION, "")
        handler = continuation(details)
        if handler is None or hmac.compare_digest(str(presented_token).encode(), self._expected):
            return handler
        return self._refusal
