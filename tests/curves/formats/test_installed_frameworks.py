"""A proof: what the installed releases of other frameworks write is read
as their older files are.
"""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import pytest

from rollcast.curves.columns.choices import Columns
from testkit.formats import generate
from testkit.formats.curve import HELD_OUT, STEPS
from testkit.formats.history import read_history
from tests.curves.formats.framework_files import WRITTEN, assert_tells_the_curve, at


def test_the_console_that_the_installed_trainer_prints_is_read_over_its_epochs(
    tmp_path: Path,
) -> None:
    """It prints no step, and four digits of each number."""
    pytest.importorskip("transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs
        generate.FRAMEWORKS["transformers"](tmp_path)
    history = read_history(str(tmp_path / "trl.log"), Columns(), None)
    origin = history.origin
    assert (origin.format, origin.pass_rate) == (
        "console log of TRL or transformers",
        "eval_reward",
    )
    assert (origin.compute, origin.unit) == ("epoch", "epochs")
    assert [point.compute for point in history.evaluations] == [step / 100 for step in STEPS]
    assert [point.pass_rate for point in history.evaluations] == pytest.approx(
        list(HELD_OUT), abs=1e-4
    )


@pytest.mark.parametrize("framework", generate.FRAMEWORKS)
def test_what_the_installed_release_writes_is_read_too(framework: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(
            f"{framework} is not installed; its file in tests/curves/formats/files is read all the "
            "same"
        )
    if framework == "verl" and importlib.util.find_spec("orjson") is None:
        pytest.skip("verl's file logger needs orjson, which is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, of their own dependencies
        generate.FRAMEWORKS[framework](tmp_path)
    found = [
        name for name in WRITTEN if (tmp_path / name).exists() or (tmp_path / f"{name}.gz").exists()
    ]
    assert found
    for name in found:
        assert_tells_the_curve(at(tmp_path, name, tmp_path), name)
