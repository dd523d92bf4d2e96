"""The environment in which a row is answered."""

from collections.abc import Sequence

from rollcast.config.datasets import RowsDataset
from rollcast.config.environments.settings import EnvironmentSettings
from rollcast.config.errors import UserError
from rollcast.tasks.fields import Row

FIELD = "environment"
"""Field of a row that names its environment, as in TRL."""


def find_environment(
    row: Row, dataset: RowsDataset, environments: Sequence[EnvironmentSettings], where: str
) -> EnvironmentSettings | None:
    """The environment that the row names, else the data set's; None = it is answered once, without
    tools.

    In a run without environments a field of that name is a field like any other. Raises UserError
    for a name that is not one of `tasks.environments`.
    """
    if not environments:
        return None
    row_environment = row.get(FIELD)
    name = dataset.environment if row_environment is None else row_environment
    if name is None:
        return None
    for environment in environments:
        if environment.name == name:
            return environment
    names = ", ".join(environment.name for environment in environments)
    raise UserError(
        f"{where}: field {FIELD!r} is {str(name)[:60]!r}, which is not one of tasks.environments "
        f"({names}); correct it or add that environment"
    )
