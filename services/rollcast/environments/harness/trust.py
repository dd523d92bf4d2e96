"""How a program verifies the generator's certificate: its usual authorities and that of `http.tls`
in one file.
"""

import os
import ssl
from pathlib import Path

USED_BY = {
    "SSL_CERT_FILE": "OpenSSL and httpx",
    "REQUESTS_CA_BUNDLE": "requests",
    "NODE_EXTRA_CA_CERTS": "Node.js",
}
"""Variables that name such a file."""


def trusting(authority: Path, folder: Path) -> dict[str, str]:
    """The variables of a program that calls the generator, with a file for each in `folder`.

    Raises OSError.
    """
    certificate_variables = {}
    for name in USED_BY:
        file = folder / f"{name}.pem"
        # OpenSSL and requests then use this file in place of the usual authorities.
        file.write_bytes(_usual(name) + b"\n" + authority.read_bytes())
        certificate_variables[name] = str(file)
    return certificate_variables


def _usual(name: str) -> bytes:
    """The authorities that it would have without ours: those of the user's own file, else the
    system's.
    """
    for chosen in (os.environ.get(name), ssl.get_default_verify_paths().cafile):
        if chosen and os.path.isfile(chosen):
            return Path(chosen).read_bytes()
    return b""
