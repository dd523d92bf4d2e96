"""All kinds of `recipe.loss`: the settings classes of the modules in this folder, in alphabetical
order of the modules.
"""

import functools
import operator
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import Field

import rollcast.config.losses
from rollcast.config.kinds import find_kinds
from rollcast.config.losses.settings import LossSettings


def loss_classes() -> list[type[LossSettings]]:
    """Return the settings classes of all losses."""
    return find_kinds(rollcast.config.losses, LossSettings)


if TYPE_CHECKING:
    Loss: TypeAlias = LossSettings
else:
    Loss = Annotated[functools.reduce(operator.or_, loss_classes()), Field(discriminator="kind")]
"""Every loss that a run file may have. Type checkers see the common base class, pydantic the
union."""
