"""A question to the Python of harness sessions that needs no session."""

from rollcast.config.environments.openenv_sessions import OpenEnvSessionEnvironment
from rollcast.environments.harness.interpreter import adapter_command, why_unfit
from rollcast.environments.openenv_sessions import adapter


def find_missing_dependency(settings: OpenEnvSessionEnvironment) -> str | None:
    """Why sessions cannot run there, to be read after the interpreter's path; None = their packages
    are there.
    """
    return why_unfit(command(settings, "look"), {"factory": settings.factory})


def command(settings: OpenEnvSessionEnvironment, subcommand: str) -> list[str]:
    """The adapter in the interpreter of the settings."""
    return adapter_command(settings.interpreter, adapter, subcommand)
