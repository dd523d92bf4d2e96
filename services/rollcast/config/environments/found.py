"""All kinds of `tasks.environments`: the settings classes of the modules in this folder, in
alphabetical order of them.
"""

import functools
import operator
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import Field

import rollcast.config.environments
from rollcast.config.environments.settings import EnvironmentSettings
from rollcast.config.kinds import find_kinds


def environment_classes() -> list[type[EnvironmentSettings]]:
    """Return the settings classes of all environments."""
    return find_kinds(rollcast.config.environments, EnvironmentSettings)


if TYPE_CHECKING:
    EnvironmentOfRun: TypeAlias = EnvironmentSettings
else:
    EnvironmentOfRun = Annotated[
        functools.reduce(operator.or_, environment_classes()), Field(discriminator="kind")
    ]
"""Every environment that a run file may have. Type checkers see the common base class, pydantic the
union."""
