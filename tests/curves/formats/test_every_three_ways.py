"""A proof: a log of every format gives one forecast, by the command, in Python, and on the live
page.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.curves.formats import framework_files
from tests.curves.formats.three_ways import TEXTS, assert_one_forecast


@pytest.mark.parametrize("name", [*framework_files.WRITTEN, "trl_trainer_state.json"])
def test_what_every_framework_wrote_gives_one_forecast(name: str, tmp_path: Path) -> None:
    assert_one_forecast(framework_files.at(framework_files.FILES, name, tmp_path), tmp_path)


@pytest.mark.parametrize("name", TEXTS)
def test_every_log_of_text_gives_one_forecast(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(TEXTS[name])
    assert_one_forecast(path, tmp_path)
