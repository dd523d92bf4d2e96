"""Options that commands on curves share, and how a command takes a whole group of options.

    @with_column_options
    def fit(source: ..., columns: ColumnOptions, run: Run = None, ...) -> None:

On the command line `columns` is one option for each field of `ColumnOptions`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from rollcast.curves.columns.choices import Columns

Run = Annotated[
    str | None,
    typer.Option(help="run, if the source holds several: its name, or its number in the log"),
]
Initial = Annotated[float | None, typer.Option(help="pass rate at compute 0, if known")]
ExcludeBefore = Annotated[
    float | None,
    typer.Option(help="compute to leave out, as the command counts it; default: found"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
CURVE_HELP = (
    "file or folder of a run (CSV, JSON, W&B, TensorBoard, MLflow, TRL, notebook, console log), "
    "wandb:ENTITY/PROJECT/RUN, or a Prometheus address"
)


@dataclass(frozen=True)
class ColumnOptions:
    """Which columns of a source hold what."""

    compute: Annotated[
        str | None,
        typer.Option(
            help=(
                "column of compute since the start: device-hours, steps, tokens, ..; of a "
                "Prometheus, expression"
            )
        ),
    ] = None
    seconds: Annotated[
        str | None,
        typer.Option(
            help="column of the time that passed, which --devices turns into device-hours"
        ),
    ] = None
    devices: Annotated[
        float | None, typer.Option(help="number of devices the run had, with --seconds")
    ] = None
    pass_rate: Annotated[
        str | None, typer.Option(help="column of pass rates in [0, 1]; of a Prometheus, expression")
    ] = None
    standard_error: Annotated[str | None, typer.Option(help="column of their standard errors")] = (
        None
    )
    truncation_ratio: Annotated[
        str | None,
        typer.Option(help="column of the share of answers cut off; the verdict heeds it"),
    ] = None
    where: Annotated[
        list[str] | None, typer.Option(help="COLUMN=VALUE that rows must meet; repeatable")
    ] = None
    scale: Annotated[
        float,
        typer.Option(help="times the pass rates of a file; 0.01 for per cent", min=1e-6, max=1e6),
    ] = 1.0
    offset: Annotated[
        float,
        typer.Option(
            help="added to them before; 1 with --scale 0.5 for rewards in [-1, 1]",
            min=-1e6,
            max=1e6,
        ),
    ] = 0.0

    def chosen(self) -> Columns:
        """The columns in the form that readers of curves take."""
        from rollcast.curves.columns.choices import Columns

        return Columns(**{**vars(self), "where": tuple(self.where or ())})


def with_group(
    parameter: str, group: type[Any], command: Callable[..., None]
) -> Callable[..., None]:
    """The command as typer takes it: `parameter` becomes one option for each field of the dataclass
    `group`.

    An option that the command declares itself (`compare --pass-rate`) stays the command's own, in
    the field's place.
    """
    command_parameters = inspect.signature(command, eval_str=True).parameters
    hints = get_type_hints(group, include_extras=True)
    names = [field.name for field in fields(group) if field.name not in command_parameters]
    options: dict[str, inspect.Parameter] = {}
    for name, own_parameter in command_parameters.items():
        if name != parameter:
            options.setdefault(name, own_parameter)
            continue
        for field in fields(group):
            option = inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
            )
            options[field.name] = command_parameters.get(field.name, option)

    @functools.wraps(command)
    def with_options(**option_values: Any) -> None:
        chosen = group(**{name: option_values.pop(name) for name in names})
        command(**{parameter: chosen}, **option_values)

    parameters = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options.values()
    ]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {option.name: option.annotation for option in parameters}
    return with_options


with_column_options = functools.partial(with_group, "columns", ColumnOptions)
