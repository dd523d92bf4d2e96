"""Files of a recipe's own parts in the run's folder:
an edit during the run changes nothing in it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from unittest.mock import Mock

import pytest

from rollcast.config.custom_function_digests import with_digests
from rollcast.config.errors import UserError
from rollcast.config.function_loading import load_function
from rollcast.config.recipe import Recipe
from rollcast.config.resolved import differences
from rollcast.config.run import load_run_config, parse_run_config
from rollcast.local.custom_function_copies import is_move, with_copies
from rollcast.local.resumed import changes_since_start
from rollcast.local.supervisor import RunState
from rollcast.local.up import run_locally
from rollcast.recipe.custom_functions import load_custom_functions

MINE = "import near_by\nimport json\n\n\ndef keeps(group):\n    return near_by.answer\n"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "mine.py").write_text(MINE)
    (folder / "near_by.py").write_text("import next_one\n\nanswer = next_one.answer\n")
    (folder / "next_one.py").write_text("answer = True\n")
    (folder / "other.py").write_text("not python")
    return folder / "mine.py"


def recipe_with(file: Path) -> Recipe:
    return Recipe.model_validate({"filter": {"kind": "python", "function": f"{file}:keeps"}})


def copy_of(recipe: Recipe) -> Path:
    assert recipe.filter is not None
    return Path(recipe.filter.function.removesuffix(":keeps"))


def test_the_copy_has_what_the_file_imports_from_next_to_it_and_works_without_the_original(
    mine: Path, tmp_path: Path
) -> None:
    copied = with_copies(recipe_with(mine), tmp_path / "run")
    copy = copy_of(copied)
    assert copy.parents[1] == tmp_path / "run/own_parts"
    assert {path.name for path in copy.parent.iterdir()} == {"mine.py", "near_by.py", "next_one.py"}
    assert with_copies(copied, tmp_path / "run") == copied, "a copy is not copied again"
    for file in mine.parent.iterdir():
        file.unlink()
    assert load_function(f"{copy}:keeps")(None) is True


def test_an_edited_file_or_module_next_to_it_has_another_copy(mine: Path, tmp_path: Path) -> None:
    copies = [copy_of(with_copies(recipe_with(mine), tmp_path / "run"))]
    for file in (mine, mine.with_name("next_one.py")):
        file.write_text(file.read_text() + "# edited\n")
        copies.append(copy_of(with_copies(recipe_with(mine), tmp_path / "run")))
    assert len(set(copies)) == 3
    assert all(copy.is_file() for copy in copies)


def test_a_folder_that_cannot_be_written_is_one_sentence(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("in the way")
    with pytest.raises(
        UserError, match=r"^folder = .*own_parts.*: cannot be written \(.*\); set `folder`"
    ):
        with_copies(recipe_with(mine), tmp_path / "run")


def test_an_edit_during_a_run_neither_ends_it_nor_keeps_it_from_being_continued(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollcast.local.preflight.check", lambda *_, **__: [])
    monkeypatch.setattr("rollcast.local.up.service_specs", lambda *_, **__: [])
    monkeypatch.setattr("rollcast.local.up.LocalServices.supervise", lambda *_: RunState.STOPPED)
    settings = {
        "run": "r",
        "folder": str(tmp_path / "runs"),
        "model": {"path": "m"},
        "recipe": {"filter": {"kind": "python", "function": "./mine.py:keeps"}},
    }
    monkeypatch.chdir(mine.parent)
    run_locally(parse_run_config(settings, source="test"), resume=False, view=Mock())
    monkeypatch.chdir(tmp_path)
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    mine.write_text(MINE + "# edited\n")
    for name in ("run.json", "up.json"):
        config = load_run_config(tmp_path / "runs/r" / name)
        assert copy_of(config.recipe).is_relative_to(tmp_path / "runs/r")
        assert config.recipe.filter is not None
        assert config.recipe.filter.digest == digest
        load_custom_functions(config.recipe)
    assert config.recipe.custom_functions.keys() == {"recipe.filter"}
    assert changes_since_start(tmp_path / "runs/r", config) == []
    elsewhere = with_digests(recipe_with(mine))
    assert [one.field for one in differences(config.recipe, elsewhere) if not is_move(one)] == [
        "filter.digest"
    ]
