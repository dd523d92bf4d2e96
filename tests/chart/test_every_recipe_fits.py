"""Every recipe of the chart fits the GPUs of the study's profile, by the command that runs before
an install.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.gpu_profiles import check_fits
from tests.chart.rendering import ROOT

RECIPES = sorted(path.stem for path in (ROOT / "helm" / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_recipe_fits(recipe: str, tmp_path: Path) -> None:
    check_fits(recipe, tmp_path)
