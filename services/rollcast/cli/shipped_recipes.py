"""The recipe files that ship with the package, and the notes in them: the place in the paper for
each setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollcast.config.errors import UserError

if TYPE_CHECKING:
    import yaml

    from rollcast.config.recipe import Recipe
    from rollcast.local.ablation import Variant

FIRST = "scalerl"
_SECTION = "recipe"
_NOTE = re.compile(r"\s#\s+(.*?)\s*$")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a recipe, as resolved."""

    name: str
    """Dotted, as in `loss.ratio_max`."""
    value: Any
    meaning: str
    is_given: bool
    """Whether the file names it; otherwise it is the default."""
    note: str | None
    """The file's comment on the setting."""


@dataclass(frozen=True, slots=True)
class RecipeFile:
    """A run file, as far as its recipe goes."""

    name: str
    path: Path
    about: str
    """The comment at its head."""
    recipe: Recipe
    explicit_settings: frozenset[str]
    """Dotted names of the settings that the file names, mappings too."""
    notes: dict[str, str] = field(repr=False)
    """Comments behind settings, by the outermost setting of the line."""

    def settings(self) -> list[Setting]:
        """Every setting of the recipe, in the order of the schema."""
        return [
            Setting(name, value, meaning, name in self.explicit_settings, self._note(name))
            for name, value, meaning in _leaves(self.recipe, "")
        ]

    def _note(self, name: str) -> str | None:
        parts = name.split(".")
        return next(
            (
                self.notes[n]
                for i in range(len(parts), 0, -1)
                if (n := ".".join(parts[:i])) in self.notes
            ),
            None,
        )


def load_shipped_recipes() -> list[RecipeFile]:
    """ScaleRL, the other published recipes, then ScaleRL without each part."""
    published = sorted(_folder().glob("*.yaml"), key=lambda path: (path.stem != FIRST, path.stem))
    return [read_recipe(path) for path in (*published, *sorted(_folder().glob("*/*.yaml")))]


def find_recipe(name: str) -> RecipeFile:
    """A shipped recipe by its name, or any run file by its path.

    Raises UserError naming the shipped ones.
    """
    paths = {path.stem: path for path in _folder().rglob("*.yaml")}
    if name in paths:
        return read_recipe(paths[name])
    if Path(name).suffix in (".yaml", ".yml", ".json"):
        return read_recipe(Path(name))
    close_names = get_close_matches(name.lower(), paths, n=1)
    advice = (
        f"{close_names[0]}, or what `rollcast recipe list` shows"
        if close_names
        else f"one of {', '.join(sorted(paths))}"
    )
    raise UserError(
        f"recipe {name!r}: does not ship; choose {advice}, or give the path of a run file, which "
        "ends in .yaml or .json"
    )


def is_shipped(recipe: RecipeFile) -> bool:
    return recipe.path.is_relative_to(_folder())


def read_recipe(path: Path) -> RecipeFile:
    """Raises UserError as `load_run_config` does."""
    import yaml

    from rollcast.config.custom_function_digests import with_digests
    from rollcast.config.run import load_run_config

    config = load_run_config(path)  # whatever is wrong with the file is said by it
    recipe = with_digests(config.recipe, search_folder=path.parent)
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    about = []
    for line in lines:
        if not line.startswith("#"):
            break
        about.append(line.lstrip("# "))
    explicit_settings: set[str] = set()
    notes: dict[str, str] = {}
    noted_lines: set[int] = set()
    for name, line_number in _places(yaml.compose(text, yaml.SafeLoader), ""):
        section, _, setting = name.partition(".")
        if section != _SECTION or not setting:
            continue
        explicit_settings.add(setting)
        if line_number not in noted_lines and (note := _NOTE.search(lines[line_number])):
            notes[setting] = note[1]
        noted_lines.add(line_number)
    return RecipeFile(
        config.run, path, " ".join(about), recipe, frozenset(explicit_settings), notes
    )


def _folder() -> Path:
    from rollcast.cli.demo import shipped_config

    return shipped_config("recipes")


def _places(node: yaml.Node | None, prefix: str) -> Iterator[tuple[str, int]]:
    """Dotted name and line of every key, outer ones first."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{prefix}{key.value}"
            yield name, key.start_mark.line
            yield from _places(value, f"{name}.")


def _leaves(settings: Any, prefix: str) -> Iterator[tuple[str, Any, str]]:
    from pydantic import BaseModel

    for name, info in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value, " ".join((info.description or "").split())


def recipe_variants(base: Recipe, names: Sequence[str]) -> list[Variant]:
    """Whole recipes, shipped or run files, with the sizes of the base's.

    Raises UserError for a name that is not known.
    """
    from rollcast.local.ablation import Variant
    from rollcast.local.ablation_parts import transplant_recipe

    recipe_files = [find_recipe(name) for name in names]
    return [
        Variant(
            recipe_file.name,
            f"the recipe {recipe_file.name}",
            transplant_recipe(recipe_file.recipe, base, is_published=is_shipped(recipe_file)),
        )
        for recipe_file in recipe_files
    ]
