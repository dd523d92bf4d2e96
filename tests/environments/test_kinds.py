"""Each kind of environment is two modules of one name: its settings, and what it does."""

from __future__ import annotations

import pytest

from rollcast.config.environments.found import environment_classes
from rollcast.config.environments.settings import EnvironmentSettings
from rollcast.config.errors import UserError
from rollcast.environments.kinds.kind import find_kind


@pytest.mark.parametrize("settings", environment_classes(), ids=lambda settings: settings.__name__)
def test_every_kind_of_settings_has_its_module(settings: type[EnvironmentSettings]) -> None:
    kind = find_kind(settings.model_construct(name="e"))
    assert callable(kind.missing)
    assert callable(kind.start)


def test_settings_alone_are_refused_with_the_file_that_is_not_there() -> None:
    class Dice(EnvironmentSettings):
        """As a module config/environments/dice.py would have it."""

    Dice.__module__ = "rollcast.config.environments.dice"
    with pytest.raises(
        UserError, match=r"cubes has .* write services/rollcast/environments/kinds/dice\.py with"
    ):
        find_kind(Dice(name="cubes"))
