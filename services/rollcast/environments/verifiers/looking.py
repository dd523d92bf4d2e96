"""Questions to the Python of a verifiers environment that need no rollout."""

from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.environments.harness.interpreter import adapter_command, why_unfit
from rollcast.environments.verifiers import adapter


def find_missing_dependency(settings: VerifiersEnvironment) -> str | None:
    """Why the taskset cannot run there, to be read after the interpreter's path; None = its
    packages are there.
    """
    return why_unfit(command(settings, "look"), {"taskset": settings.taskset})


def command(settings: VerifiersEnvironment, subcommand: str) -> list[str]:
    """The adapter in the interpreter of the settings."""
    return adapter_command(settings.interpreter, adapter, subcommand)
