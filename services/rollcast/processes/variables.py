"""The environment of programs that are not ours."""

import os


def users_variables() -> dict[str, str]:
    """The user's variables without ours, some of which are addresses or secrets."""
    return {name: text for name, text in os.environ.items() if not name.startswith("ROLLCAST_")}
