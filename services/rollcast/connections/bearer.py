"""The bearer token that a service asks for.

A run file names the environment variable that holds it.
"""

import os


class NoTokenError(Exception):
    """The variable holds no token.

    The message is a clause with its name and the reason, never with its value.
    """


def bearer_headers(variable: str | None) -> dict[str, str]:
    """The header of a request; none if no variable is named. Raises NoTokenError."""
    if variable is None:
        return {}
    token = os.environ.get(variable, "").strip()
    if not token:
        raise NoTokenError(
            f"the environment variable {variable}, which is to hold its token, is not set"
        )
    if not (token.isascii() and token.isprintable()):  # what refuses it later would say it aloud
        raise NoTokenError(
            f"the environment variable {variable} holds no token: it has characters of no header"
        )
    return {"Authorization": f"Bearer {token}"}
