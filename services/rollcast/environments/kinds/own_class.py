"""A class of the user's own, in processes of the generator's machine."""

from collections.abc import Iterator

from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.environments.kinds.kind import Surroundings
from rollcast.environments.python_processes.processes import EnvironmentProcesses


def missing(settings: ClassEnvironment, field: str) -> Iterator[str]:
    """No sentence: the check imports the class itself, in a process
    (`rollcast.local.checks.environment_classes`).
    """
    yield from ()


def start(settings: ClassEnvironment, surroundings: Surroundings) -> EnvironmentProcesses:
    return EnvironmentProcesses(settings, surroundings.on_replaced)
