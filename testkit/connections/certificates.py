"""A certificate authority of one's own and a server certificate from it, made by openssl on the
spot.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rollcast.config.connections import TLS

EXTENSIONS = "subjectAltName=IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n"


def make_certificates(folder: Path, curve: str = "prime256v1") -> TLS:
    """A certificate for a server on 127.0.0.1; skips the test if openssl is missing."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "extensions").write_text(EXTENSIONS)
    new_key = ["-newkey", "ec", "-pkeyopt", f"ec_paramgen_curve:{curve}", "-nodes"]
    _openssl(
        folder,
        "req",
        "-x509",
        *new_key,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-days",
        "2",
        "-subj",
        "/CN=test",
    )
    _openssl(
        folder, "req", *new_key, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=service"
    )
    signed_by = [
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-days",
        "2",
        "-extfile",
        "extensions",
    ]
    _openssl(folder, "x509", "-req", "-in", "request.pem", *signed_by, "-out", "certificate.pem")
    return TLS(
        certificate_authority=folder / "ca.pem",
        certificate=folder / "certificate.pem",
        private_key=folder / "key.pem",
    )


def lock_key(tls: TLS) -> TLS:
    """This certificate with its key behind a password."""
    assert tls.private_key is not None
    locked = tls.private_key.with_name("locked.pem")
    _openssl(
        locked.parent,
        "ec",
        "-in",
        str(tls.private_key),
        "-aes256",
        "-passout",
        "pass:word",
        "-out",
        str(locked),
    )
    return tls.model_copy(update={"private_key": locked})


def _openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments], cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
