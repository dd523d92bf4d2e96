"""Certificates and keys of connections."""

from rollcast.connections.certificates import check_certificates
from rollcast.local.checks.check import Start

SETTINGS = ("redis.tls", "rpc.tls", "http.tls", "grader")


def check(start: Start) -> None:
    config = start.config
    check_certificates(config.redis, config.rpc, config.http)
