"""Redis clients from configuration: password, TLS and deadlines in one place."""

from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from rollcast.config.connections import Redis as RedisSettings
from rollcast.connections.certificates import check_client

RedisAway = (RedisConnectionError, RedisTimeoutError, OSError)
"""Errors of a command while the server is unreachable or loading."""


def connect(settings: RedisSettings) -> redis.Redis:
    """A thread-safe client that returns bytes. Connects at the first command.

    Raises UserError if a file of redis.tls cannot be used.
    """
    return redis.Redis(
        **_arguments(settings), retry=Retry(ExponentialWithJitterBackoff(cap=0.5), 1)
    )


def connect_async(settings: RedisSettings) -> redis.asyncio.Redis:
    """A client for asyncio, see `connect`."""
    return redis.asyncio.Redis(
        **_arguments(settings),
        retry=redis.asyncio.retry.Retry(ExponentialWithJitterBackoff(cap=0.5), 1),
    )


def _arguments(settings: RedisSettings) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        **({"unix_socket_path": str(settings.socket)} if settings.socket else {}),
        "host": settings.host,
        "port": settings.port,
        "username": settings.username,
        "password": settings.password.get_secret_value() if settings.password else None,
        "socket_timeout": settings.timeout_seconds,
        "socket_connect_timeout": settings.timeout_seconds,
        "health_check_interval": 15,
        "protocol": 2,
    }
    if settings.tls is not None:
        tls = settings.tls
        check_client(tls, "redis.tls")
        arguments |= {
            "ssl": True,
            "ssl_ca_certs": str(tls.certificate_authority) if tls.certificate_authority else None,
            "ssl_certfile": str(tls.certificate) if tls.certificate else None,
            "ssl_keyfile": str(tls.private_key) if tls.private_key else None,
        }
    return arguments
