"""Whether the code of each kind of environment is here: another machine has the same packages."""

from rollcast.environments.kinds.kind import find_module_name
from rollcast.local.checks.check import Start

SETTINGS = ("tasks.environments",)


def check(start: Start) -> None:
    for environment in start.config.tasks.environments:
        find_module_name(environment)
