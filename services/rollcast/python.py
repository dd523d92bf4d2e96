"""Forecasts in Python: `rollcast.forecast(..)` of a file, a frame, arrays or a mapping.

    f = rollcast.forecast("trainer_state.json")
    f.verdict, f.reason, f.unit
    f.at(5000)["q50"]
    f.advice(budget=8000, worth=0.01)["headline"]
    f.plot("fit.png")

It reads what `rollcast fit` reads and says what that says, with the same sentences where something is wrong.
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rollcast.config.bounds import COMPUTES, MOST_COMPUTE
from rollcast.config.errors import UserError
from rollcast.curves.amounts import DIFFERENCE, amount, counted_evaluations
from rollcast.curves.answer import answer_as_json, readings_at
from rollcast.curves.columns import Columns
from rollcast.curves.curve_source import fit_options, forecast_source, histories_of_sheet
from rollcast.curves.run_forecast import RunForecast, forecast_history
from rollcast.curves.sheet import Sheet
from rollcast.plots.figure import check_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Answer = TypeVar("Answer")
LONGEST_UNIT = 40
ARRAYS = "arrays"
_PARTS = (("next tenth", "soon"), ("rest", "rest"))
"""Parts of a budget, by name and by key of the advice."""


class InputError(ValueError):
    """The input cannot be forecast; the sentence gives the reason and the remedy."""


class CurveForecast:
    """The forecast of one run's curve, as it was at its newest evaluation."""

    def __init__(self, run: RunForecast) -> None:
        self._run = run

    @property
    def verdict(self) -> str:
        """too_few, too_early, forecastable, saturated, no_learning, broken, not_sigmoid or regime_change."""
        return str(self._run.forecast.verdict.kind)

    @property
    def reason(self) -> str:
        """The evidence for the verdict, in a sentence."""
        return self._run.forecast.verdict.reason

    @property
    def unit(self) -> str:
        """What compute is counted in."""
        return self._run.unit

    def at(self, compute: float) -> dict[str, float | None]:
        """What an evaluation at `compute`, in `unit`, will read: its 5, 25, 50, 75 and 95 % quantiles, q05 to q95.

        All of them are None if the evaluations are too few. Raises InputError: it is not an amount of compute.
        """
        if not 0 < compute <= MOST_COMPUTE:
            raise InputError(f"compute {compute:g}: {self.unit} must be in {COMPUTES}")
        return readings_at(self._run, [compute])[0]

    def to_dict(self, at: Sequence[float] = (), target: Sequence[float] = ()) -> dict[str, Any]:
        """The same as `rollcast fit --json` prints.

        `at`: compute to predict, by default twice and four times the newest if readings are forecast. `target`: pass
        rates to reach. Raises InputError.
        """
        told = {"advice": self.advice()}
        return told | _asked(lambda: answer_as_json(self._run, list(at) or self._run.usual_computes, list(target)))

    def advice(
        self, budget: float | None = None, worth: float | None = None, price: float | None = None
    ) -> dict[str, Any]:
        """Stop, continue, or wait for n more evaluations: the advice of `fit --json` on the rest of a budget.

        An argument that is None has the value that `forecast` was given.

        Args:
            budget: total compute in `unit` at which the run would end; by default twice the compute so far.
            worth: gain in pass rate that the rest would be paid for; else 0.02, less for a small rest.
            price: of one `unit`, in any currency.

        Raises InputError: one of them is out of bounds.
        """
        return _asked(lambda: self._run.advice(budget, worth, price).to_dict())

    def plot(self, path: str | os.PathLike[str] | None = None, *, until: float | None = None) -> Figure:
        """Points, level now, bands up to `until` (by default the end of the budget) and earlier forecasts of that end.

        Written to `path` (.png, .svg) if one is given. Raises InputError: it cannot be written, or matplotlib is not
        installed.
        """
        return _asked(lambda: self._plot(None if path is None else Path(path), until))

    def _plot(self, path: Path | None, until: float | None) -> Figure:
        check_plot(Path("figure.png") if path is None else path)
        from rollcast.plots.figure import save
        from rollcast.plots.forecast import forecast_figure

        figure = forecast_figure(self._run, self._run.advice(), until=until)
        if path is not None:
            save(figure, path)
        return figure

    def _repr_html_(self) -> str:
        """A table for a notebook, below the advice if a budget is known. Names of a file are text, never markup."""
        answer = self.to_dict()
        rows = [("asymptote A", answer["asymptote"], ".3f"), ("headroom", answer["headroom"], DIFFERENCE)]
        told = ""
        advice = answer["advice"]
        if self._run.end is not None and advice["headline"] is not None:
            told = f"<p><strong>{advice['headline']}.</strong> {html.escape(advice['reason'])}</p>"
            rows += [(self._spent(name, advice[part]), advice[part]["gain"], DIFFERENCE) for name, part in _PARTS]
        rows += [(f"reading at {amount(of['compute'])} {self.unit}", of, ".3f") for of in answer["predictions"]]
        cells = [
            f"<tr><th>{html.escape(name)}</th>"
            + "".join(f"<td>{amount(of[level], form)}</td>" for level in ("q05", "q50", "q95"))
            + "</tr>"
            for name, of, form in rows
            if of is not None and of["q50"] is not None
        ]
        said = html.escape(f"{answer['curve']}: {self.verdict.replace('_', ' ')}. {self.reason}")
        head = "<tr><th></th><th>5 %</th><th>median</th><th>95 %</th></tr>"
        return f"<div>{told}<p>{said}</p><table>{head}{''.join(cells)}</table></div>"

    def _spent(self, name: str, stretch: dict[str, Any]) -> str:
        price = "" if stretch["money"] is None else f" for {amount(stretch['money'])}"
        return f"gain of the {name}, {amount(stretch['compute'])} {self.unit}{price}"

    def __repr__(self) -> str:
        curve = self._run.forecast.curve
        made = counted_evaluations(len(self._run.evaluations), self._run.num_at_start)
        return f"<forecast of {curve.name!r}: {self.verdict.replace('_', ' ')}, {made}, {self.unit}>"


def forecast(
    data: Any,
    *,
    compute: str | None = None,
    pass_rate: str | None = None,
    standard_error: str | None = None,
    scale: float = 1.0,
    offset: float = 0.0,
    seconds: str | None = None,
    devices: float | None = None,
    run: str | None = None,
    initial: float | None = None,
    exclude_before: float | None = None,
    unit: str | None = None,
    law_alone: bool = False,
    prior: str | os.PathLike[str] | None = None,
    budget: float | None = None,
    worth: float | None = None,
    price: float | None = None,
) -> CurveForecast:
    """Forecast one run.

    Args:
        data: a path or address as for `rollcast fit`; a DataFrame; a mapping of columns; or arrays (compute, pass rate)
        compute, pass_rate, standard_error: names of columns; recognised by default.
        scale, offset: (value + offset) x scale is the pass rate; 0.01, 0 for per cent; 0.5, 1 for rewards in [-1, 1].
        seconds, devices: the column of the elapsed time and the number of devices, for device-hours.
        run, initial: name of the run, if there are several; pass rate at compute 0, if it is known.
        exclude_before: compute to leave out; found by default.
        unit: of compute, which is taken as it is. By default the column's name gives it, and two arrays are counted in
            `units`. A file has its own.
        law_alone: the paper's law and its own prior, and no other shape.
        prior: a JSON file with the prior: what to expect of a run before its first evaluation; instead of `law_alone`.
        budget, worth, price: the terms of `advice` unless it is called with others; budget by default TRL's max_steps.

    Raises:
        InputError: a ValueError with the mistake and its remedy.
    """
    columns = Columns(compute, pass_rate, standard_error, scale=scale, offset=offset, seconds=seconds, devices=devices)

    def made() -> RunForecast:
        if law_alone and prior is not None:
            raise ValueError("law_alone, prior: each is a prior; give one of the two")
        found = fitted(None if prior is None else Path(prior))
        found = replace(found.with_budget(budget), worth=worth, price=price)
        found.advice()  # refuses impossible terms now, before they are asked for
        return found

    def fitted(prior_file: Path | None) -> RunForecast:
        if isinstance(data, (str, os.PathLike)):
            if unit is not None:
                raise ValueError(f"unit {unit[:LONGEST_UNIT]!r}: a file has its own unit; leave this one out")
            source = os.fspath(data)
            return forecast_source(source, columns, run, initial, exclude_before, law_alone, prior_file)
        sheet = _sheet(data)
        asked = _with_unit(columns, unit, is_named=sheet.format != ARRAYS)
        [history] = histories_of_sheet(sheet, sheet.format, asked, sheet.format, run, is_one=True)
        return forecast_history(history, fit_options(initial, exclude_before, law_alone, prior_file))

    return CurveForecast(_asked(made))


def _asked(question: Callable[[], Answer]) -> Answer:
    try:
        return question()
    except (UserError, ValueError) as error:
        raise InputError(str(error)) from None


def _with_unit(columns: Columns, unit: str | None, *, is_named: bool) -> Columns:
    """`is_named`: whether names of columns tell the unit. Raises ValueError: it is not a unit, or one too many."""
    if unit is None and (is_named or columns.seconds is not None):
        return columns
    unit = "units" if unit is None else unit
    if not (unit.strip() and unit.isprintable() and len(unit) <= LONGEST_UNIT):
        raise ValueError(f"unit {unit[:LONGEST_UNIT]!r}: give 1 to {LONGEST_UNIT} printable characters, such as tokens")
    if columns.seconds is not None:
        raise ValueError(f"unit {unit!r}: seconds and devices make device-hours; leave one of them out")
    return replace(columns, unit=unit)


def _sheet(data: Any) -> Sheet:
    """The sheet of a frame, a mapping of columns, or two arrays. Raises ValueError."""
    if hasattr(data, "to_dict") and hasattr(data, "columns"):
        return _of_columns("DataFrame", {str(name): list(data[name]) for name in data.columns})
    if isinstance(data, Mapping):
        return _of_columns("mapping of columns", {str(name): _column(name, values) for name, values in data.items()})
    try:
        x, y = data
        columns = {"compute": [float(value) for value in x], "pass_rate": [float(value) for value in y]}
    except (TypeError, ValueError):
        raise ValueError(
            f"data: a {type(data).__name__} is not a curve; give a path, a DataFrame, a mapping of columns, or two "
            "arrays"
        ) from None
    return _of_columns(ARRAYS, columns)


def _column(name: object, values: Any) -> list[Any]:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise ValueError(
            f"data: column {name} is a {type(values).__name__}; give a list of one value for each evaluation"
        )
    try:
        return list(values)
    except TypeError:  # an array without dimensions
        raise ValueError(f"data: column {name} is one value; give a list of one for each evaluation") from None


def _of_columns(format: str, columns: dict[str, list[Any]]) -> Sheet:
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise ValueError(f"data: columns of {', '.join(map(str, sorted(lengths)))} values; give one length")
    return Sheet.of_chunks(format, columns, [(lengths.pop(), columns)])
