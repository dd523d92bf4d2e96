"""Copies, in the run's folder, of the files that a recipe's own parts are in: the run and its
continuation use them.

An edit during the run thus changes nothing in it, and `up --config RUN/up.json --resume` works from
every folder.

    runs/r/own_parts/0123456789ab/mine.py    the file of `function`, and modules next to it that
                                             it imports

A package next to the file is not copied: it must be installed, or be in the folder in which the
command is started.
"""

import ast
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.recipe import Recipe
from rollcast.config.resolved import Difference
from rollcast.runfolder.files import CUSTOM_FUNCTIONS


def with_copies(recipe: Recipe, run_folder: Path) -> Recipe:
    """The recipe with its own parts by their copies, which are made. `run_folder` must be absolute.

    Raises UserError if a copy cannot be written.
    """
    copies_folder = run_folder / CUSTOM_FUNCTIONS
    updates = {}
    for setting, custom_function in recipe.custom_functions.items():
        file, _, name = custom_function.function.rpartition(":")
        original = Path(file).expanduser().absolute()
        if file.endswith(".py") and not original.is_relative_to(copies_folder):
            copy = _copy_with_modules(original, copies_folder)
            updates[setting.removeprefix("recipe.")] = custom_function.model_copy(
                update={"function": f"{copy}:{name}"}
            )
    return recipe.model_copy(update=updates)


def is_move(difference: Difference) -> bool:
    """Whether the difference is only the folder of a part's file.

    Its digest says whether the code is another.
    """
    names = [difference.old_value, difference.new_value]
    if not difference.field.endswith(".function") or not all(
        isinstance(name, str) for name in names
    ):
        return False
    old_name, new_name = (Path(name).name for name in names)
    return old_name == new_name and ".py:" in old_name


def _copy_with_modules(original: Path, copies_folder: Path) -> Path:
    """The copy of a file; made if it is not there yet."""
    needed = [original]
    for file in needed:  # grows
        neighbour_files = [original.with_name(f"{name}.py") for name in _find_imports(file)]
        needed.extend(
            neighbour
            for neighbour in dict.fromkeys(neighbour_files)
            if neighbour.is_file() and neighbour not in needed
        )
    digest = hashlib.sha256()
    for file in needed:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    # Hexadecimal digits of a copy's folder: 48 bits of the files' digest, so that no two contents
    # of a run share one
    folder = copies_folder / digest.hexdigest()[:12]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in needed:
            shutil.copyfile(file, folder / file.name)
    except OSError as error:
        raise UserError(
            f"folder = {folder}: cannot be written ({error.strerror}); set `folder` to one that can"
        ) from error
    return folder / original.name


def _find_imports(file: Path) -> Iterator[str]:
    """First names of the modules that a file imports."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module.partition(".")[0]
