"""Checks certificates before a connection uses them: gRPC and Redis only report that they could not
connect.
"""

import ssl

from rollcast.config.connections import TLS, Http, Redis, Rpc
from rollcast.config.errors import UserError


def check_certificates(redis: Redis, rpc: Rpc, http: Http) -> None:
    """Raises UserError for the first PEM file of the run that cannot be used."""
    if redis.tls is not None:
        check_client(redis.tls, "redis.tls")
    if rpc.tls is not None:
        check_server(rpc.tls, "rpc.tls")
    if http.tls is not None:
        check_server(http.tls, "http.tls")


def check_server(tls: TLS, setting: str) -> None:
    """Raises UserError that names `setting` if a server lacks certificate or key, or a file cannot
    be used.
    """
    if tls.certificate is None or tls.private_key is None:
        raise UserError(
            f"{setting}: a server needs {setting}.certificate and {setting}.private_key; give both "
            "paths"
        )
    check_client(tls, setting)


def check_client(tls: TLS, setting: str) -> None:
    """Raises UserError that names `setting` if a file cannot be used, or a certificate lacks its
    key.
    """
    verifying_context(tls, setting)
    if (tls.certificate is None) != (tls.private_key is None):
        raise UserError(
            f"{setting}: {setting}.certificate and {setting}.private_key belong together; give "
            "both or none"
        )
    if tls.certificate is None:
        return
    try:
        # Without the argument OpenSSL would wait for a password at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(
            tls.certificate, tls.private_key, password=""
        )
    except OSError as error:  # SSLError is a subclass
        raise UserError(
            f"{setting}.certificate = {tls.certificate}, {setting}.private_key = "
            f"{tls.private_key}: cannot be used ({error.strerror or error}); give readable PEM "
            "files that belong together, the key without a password"
        ) from error


def verifying_context(tls: TLS | None, setting: str) -> ssl.SSLContext:
    """Verifies servers by the authority of `tls`, or by the system's.

    Raises UserError if it cannot be read.
    """
    authority = tls.certificate_authority if tls else None
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise UserError(
            f"{setting}.certificate_authority = {authority}: cannot be used "
            f"({error.strerror or error}); give a readable PEM file"
        ) from error
