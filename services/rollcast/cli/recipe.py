"""`rollcast recipe list|show|diff`: the published recipes and what sets them apart."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import report
from rollcast.cli.curve_options import AsJson
from rollcast.cli.output import echo_json

if TYPE_CHECKING:
    from rollcast.cli.shipped_recipes import RecipeFile

app = typer.Typer(
    help="The recipes that ship: the published ones, and ScaleRL without each of its parts.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
COLUMNS = {
    "schedule": "schedule.kind",
    "loss": "loss.kind",
    "average": "aggregation",
    "normalised by": "advantage_normalisation",
    "head": "lm_head",
    "0-variance filter": "zero_variance_filter",
    "resampling below": "no_positive_resampling",
    "length": "length_control.kind",
    "prompts": "prompts_per_step",
}
"""Heading -> setting."""
Name = Annotated[
    str, typer.Argument(metavar="RECIPE", help="name of a shipped recipe, or a run file")
]


@app.command("list")
def list_recipes(as_json: AsJson = False) -> None:
    """One line for each recipe that ships.

    \b
    rollcast recipe list
    """
    from rollcast.cli.shipped_recipes import load_shipped_recipes

    recipes = load_shipped_recipes()
    if as_json:
        echo_json([_report(recipe) for recipe in recipes])
        return
    rows = []
    for recipe in recipes:
        values = {setting.name: setting.value for setting in recipe.settings()}
        rows.append((recipe.name, *(_format_value(values.get(name)) for name in COLUMNS.values())))
    report.show_table(("recipe", *COLUMNS), rows, text_columns=tuple(COLUMNS))


@app.command()
def show(recipe: Name, as_json: AsJson = False) -> None:
    """Every setting of a recipe: its value, whether the file or the default gives it, and the place
    in the paper.

    \b
    rollcast recipe show scalerl
    rollcast recipe show my-run.yaml --json
    """
    from rollcast.cli.shipped_recipes import find_recipe

    recipe_file = find_recipe(recipe)
    if as_json:
        echo_json(_report(recipe_file))
        return
    typer.echo(f"{recipe_file.name}: {recipe_file.path}")
    typer.echo(recipe_file.about + "\n")
    for setting in recipe_file.settings():
        origin = "the file" if setting.is_given else "default"
        note = f"; {setting.note}" if setting.note else ""
        typer.echo(f"{setting.name}: {_format_value(setting.value)}    ({origin}{note})")
        # Columns of a line, so that the text also reads well in a narrow terminal
        typer.echo(
            textwrap.fill(setting.meaning, 100, initial_indent="    ", subsequent_indent="    ")
        )


@app.command()
def diff(first: Name, second: Name, as_json: AsJson = False) -> None:
    """Only the settings in which two recipes differ.

    \b
    rollcast recipe diff scalerl minimax
    rollcast recipe diff scalerl my-run.yaml
    """
    from rollcast.cli.shipped_recipes import find_recipe
    from rollcast.config.custom_function_digests import unread

    first_file = find_recipe(first)
    second_file = find_recipe(second)
    for file in (first_file, second_file):
        for setting, function in unread(file.recipe).items():
            typer.echo(
                f"{file.path}: {setting} {function} cannot be compared: its file is neither next "
                "to the run file nor in this folder",
                err=True,
            )
    values = [
        {setting.name: setting.value for setting in recipe.settings()}
        for recipe in (first_file, second_file)
    ]
    names = list(dict.fromkeys([*values[0], *values[1]]))
    different = [
        name for name in names if values[0].get(name, _ABSENT) != values[1].get(name, _ABSENT)
    ]
    if as_json:
        setting_values = {name: [value.get(name) for value in values] for name in different}
        answer = {"recipes": [first_file.name, second_file.name], "settings": setting_values}
        echo_json(answer, default=str)
    elif not different:
        typer.echo(f"{first_file.name} and {second_file.name}: no setting differs")
    else:
        rows = [
            (name, *(_format_value(value[name]) if name in value else "" for value in values))
            for name in different
        ]
        report.show_table(
            ("setting", first_file.name, second_file.name),
            rows,
            text_columns=(first_file.name, second_file.name),
        )


_ABSENT = object()


def _report(recipe: RecipeFile) -> dict[str, Any]:
    return {
        "recipe": recipe.name,
        "file": str(recipe.path),
        "about": recipe.about,
        "settings": [
            {
                "name": setting.name,
                "value": setting.value,
                "from": "file" if setting.is_given else "default",
                "note": setting.note,
                "meaning": setting.meaning,
            }
            for setting in recipe.settings()
        ],
    }


def _format_value(value: object) -> str:
    """The value in the syntax of a run file."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    return str(list(value)) if isinstance(value, tuple) else str(value)
