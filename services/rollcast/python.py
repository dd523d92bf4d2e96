"""Forecasts in Python: `rollcast.forecast(..)` of a file, a frame, arrays or a mapping. Recorded
steps: `rollcast.load_step(..)`.

    f = rollcast.forecast("trainer_state.json")
    f.verdict, f.reason, f.unit, f.advice["headline"]
    f.at(5000)["q50"]
    f.advice(budget=8000, worth=0.01)["headline"]
    f.plot("fit.png")

It reads what `rollcast fit` reads and says what that says, with the same sentences where something
is wrong.
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rollcast.config.bounds import COMPUTES, MOST_COMPUTE
from rollcast.config.errors import UserError
from rollcast.curves.amounts import DIFFERENCE, amount, counted_evaluations
from rollcast.curves.answer import answer_as_json, readings_at
from rollcast.curves.columns.choices import Columns
from rollcast.curves.curve_source import fit_options, forecast_source, histories_of_sheet
from rollcast.curves.data_sheet import ARRAYS, make_data_sheet
from rollcast.curves.run_forecast import RunForecast, forecast_history
from rollcast.plots.figure import check_plot
from rollcast.recorded.step_bundle import StepBundle as StepBundle
from rollcast.recorded.step_bundle import load_step as read_step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Answer = TypeVar("Answer")
_FitChoices = tuple[float | None, float | None, bool, Path | None]
"""Initial pass rate, compute to leave out, whether the law is alone, and the prior's file, as
`fit_options` takes them."""
LONGEST_UNIT = 40
_PARTS = (("next tenth", "soon"), ("rest", "rest"))
"""Parts of a budget, by name and by key of the advice."""


class InputError(ValueError):
    """The input cannot be forecast; the sentence gives the reason and the remedy."""


class CurveAdvice(dict[str, Any]):
    """The advice on the rest of a budget, by name. Called, it is that on other terms."""

    def __init__(self, run: RunForecast) -> None:
        super().__init__(run.advice().to_dict())
        self._run = run

    def __call__(
        self, budget: float | None = None, worth: float | None = None, price: float | None = None
    ) -> dict[str, Any]:
        """Raises InputError: a term is out of bounds."""
        terms = [
            _term(name, value)
            for name, value in (("budget", budget), ("worth", worth), ("price", price))
        ]
        return _convert_errors(lambda: self._run.advice(*terms).to_dict())


class CurveForecast:
    """The forecast of one run's curve, as it was at its newest evaluation."""

    def __init__(self, run: RunForecast) -> None:
        self._run = run

    @property
    def verdict(self) -> str:
        """too_few, too_early, forecastable, saturated, no_learning, broken, not_sigmoid or
        regime_change.
        """
        return str(self._run.forecast.verdict.kind)

    @property
    def reason(self) -> str:
        """The evidence for the verdict, in a sentence."""
        return self._run.forecast.verdict.reason

    @property
    def unit(self) -> str:
        """Unit of compute."""
        return self._run.unit

    def at(self, compute: float) -> dict[str, float | None]:
        """Forecast reading of an evaluation at `compute`, in `unit`: its 5, 25, 50, 75 and 95 %
        quantiles, q05 to q95.

        Each quantile is None if there are too few evaluations. Raises InputError if `compute` is
        not an amount.
        """
        return readings_at(self._run, self._computes("compute", [compute]))[0]

    def to_dict(self, at: Sequence[float] = (), target: Sequence[float] = ()) -> dict[str, Any]:
        """The same as `rollcast fit --json` prints.

        `at`: compute to predict, by default twice and four times the newest if readings are
        forecast. `target`: pass rates to reach. Raises InputError.
        """
        computes = self._computes("at", at) or self._run.usual_computes
        targets = _numbers("target", target)
        return {"advice": dict(self.advice)} | _convert_errors(
            lambda: answer_as_json(self._run, computes, targets)
        )

    def _computes(self, name: str, values: Sequence[float]) -> list[float]:
        """Raises InputError: one is not an amount of compute."""
        computes = _numbers(name, values)
        for compute in computes:
            if not 0 < compute <= MOST_COMPUTE:
                raise InputError(f"{name} {compute:g}: {self.unit} must be in {COMPUTES}")
        return computes

    @property
    def advice(self) -> CurveAdvice:
        """Stop, continue, or wait for n more evaluations: `advice` of `fit --json`, on the terms
        given to `forecast`.

        Called, it answers for other terms, `f.advice(budget=8000, worth=0.01)["headline"]`; one
        that is None is kept. `budget`: total compute in `unit` at which the run would end, by
        default twice the compute so far. `worth`: gain in pass rate that the rest would be paid
        for; else 0.02, less for a small rest. `price`: of one `unit`, in any currency. Raises
        InputError: one of them is out of bounds.
        """
        return CurveAdvice(self._run)

    def plot(
        self, path: str | os.PathLike[str] | None = None, *, until: float | None = None
    ) -> Figure:
        """Points, level now, bands up to `until` (by default the end of the budget) and earlier
        forecasts of that end.

        Written to `path` (.png, .svg) if one is given. Raises InputError: it cannot be written, or
        matplotlib is not installed.
        """
        return _convert_errors(lambda: self._plot(None if path is None else Path(path), until))

    def _plot(self, path: Path | None, until: float | None) -> Figure:
        check_plot(Path("figure.png") if path is None else path)
        from rollcast.plots.figure import save
        from rollcast.plots.forecast import forecast_figure

        figure = forecast_figure(self._run, self._run.advice(), until=until)
        if path is not None:
            save(figure, path)
        return figure

    def _repr_html_(self) -> str:
        """A table for a notebook, below the advice if a budget is known.

        Names of a file are text, never markup.
        """
        answer = self.to_dict()
        rows = [
            ("asymptote A", answer["asymptote"], ".3f"),
            ("headroom", answer["headroom"], DIFFERENCE),
        ]
        advice_html = ""
        advice = self.advice
        if self._run.end is not None and advice["headline"] is not None:
            advice_html = (
                f"<p><strong>{advice['headline']}.</strong> {html.escape(advice['reason'])}</p>"
            )
            rows += [
                (
                    self._label_gain(name, advice[stretch_name]),
                    advice[stretch_name]["gain"],
                    DIFFERENCE,
                )
                for name, stretch_name in _PARTS
            ]
        rows += [
            (f"reading at {amount(prediction['compute'])} {self.unit}", prediction, ".3f")
            for prediction in answer["predictions"]
        ]
        cells = [
            f"<tr><th>{html.escape(name)}</th>"
            + "".join(
                f"<td>{amount(quantiles[level], form)}</td>" for level in ("q05", "q50", "q95")
            )
            + "</tr>"
            for name, quantiles, form in rows
            if quantiles is not None and quantiles["q50"] is not None
        ]
        summary = html.escape(f"{answer['curve']}: {self.verdict.replace('_', ' ')}. {self.reason}")
        head = "<tr><th></th><th>5 %</th><th>median</th><th>95 %</th></tr>"
        return f"<div>{advice_html}<p>{summary}</p><table>{head}{''.join(cells)}</table></div>"

    def _label_gain(self, name: str, stretch: dict[str, Any]) -> str:
        price = "" if stretch["money"] is None else f" for {amount(stretch['money'])}"
        return f"gain of the {name}, {amount(stretch['compute'])} {self.unit}{price}"

    def __repr__(self) -> str:
        curve = self._run.forecast.curve
        evaluations_text = counted_evaluations(len(self._run.evaluations), self._run.num_at_start)
        return (
            f"<forecast of {curve.name!r}: {self.verdict.replace('_', ' ')}, {evaluations_text}, "
            f"{self.unit}>"
        )


def forecast(
    data: Any,
    pass_rates: Any = None,
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
        data: a path or address as for `rollcast fit`; a DataFrame; a mapping of columns; or the
            computes of a curve, with `pass_rates`, or as one pair of arrays.
        pass_rates: the readings of a curve, one for each compute.
        compute, pass_rate, standard_error: names of columns; recognised by default.
        scale, offset: (value + offset) x scale is the pass rate; 0.01, 0 for per cent; 0.5, 1 for
            rewards in [-1, 1].
        seconds, devices: the column of the elapsed time and the number of devices, for
            device-hours.
        run, initial: name of the run, if there are several; pass rate at compute 0, if it is known.
        exclude_before: compute to leave out; found by default.
        unit: of compute, which is taken as it is. By default the column's name gives it, and two
            arrays are counted in `units`. A file has its own.
        law_alone: the paper's law and its own prior, and no other shape.
        prior: a JSON file with the prior: what to expect of a run before its first evaluation;
            instead of `law_alone`.
        budget, worth, price: the terms of `advice`; budget by default TRL's max_steps.

    Raises:
        InputError: a ValueError with the mistake and its remedy.
    """
    columns = Columns(
        compute,
        pass_rate,
        standard_error,
        scale=scale,
        offset=offset,
        seconds=seconds,
        devices=devices,
    )
    source = data if pass_rates is None else (data, pass_rates)
    terms = (_term("budget", budget), _term("worth", worth), _term("price", price))
    choices = (initial, exclude_before, law_alone, None if prior is None else Path(prior))
    return CurveForecast(
        _convert_errors(lambda: _with_terms(_fit_run(source, columns, unit, run, choices), *terms))
    )


def load_step(path: str | os.PathLike[str]) -> StepBundle:
    """Open a step that the flight recorder kept: `RUN/recorded/step-12`.

    Raises:
        InputError: a ValueError with the mistake and its remedy.
    """
    return _convert_errors(lambda: read_step(Path(path)))


def _fit_run(
    source: Any, columns: Columns, unit: str | None, run: str | None, choices: _FitChoices
) -> RunForecast:
    """The forecast of a file's run, or of data in memory. Raises UserError and ValueError."""
    _, _, law_alone, prior = choices
    if law_alone and prior is not None:
        raise ValueError("law_alone, prior: each is a prior; give one of the two")
    if isinstance(source, (str, os.PathLike)):
        if unit is not None:
            raise ValueError(
                f"unit {unit[:LONGEST_UNIT]!r}: a file has its own unit; leave this one out"
            )
        return forecast_source(os.fspath(source), columns, run, *choices)
    sheet = make_data_sheet(source)
    unit_columns = _with_unit(columns, unit, is_named=sheet.format != ARRAYS)
    [history] = histories_of_sheet(
        sheet, sheet.format, unit_columns, sheet.format, run, is_one=True
    )
    return forecast_history(history, fit_options(*choices))


def _with_terms(
    run: RunForecast, budget: float | None, worth: float | None, price: float | None
) -> RunForecast:
    """The forecast on these terms of every advice; None = the default.

    Raises ValueError: one is impossible.
    """
    on_terms = replace(run.with_budget(budget), worth=worth, price=price)
    on_terms.advice()
    return on_terms


def _convert_errors(question: Callable[[], Answer]) -> Answer:
    try:
        return question()
    except (UserError, ValueError) as error:
        raise InputError(str(error)) from None


def _numbers(name: str, values: Sequence[float]) -> list[float]:
    """Raises InputError: one of the values is not a number, or they are not a list."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise InputError(f"{name} {values!r:.40}: give a list of numbers")
    return [_number(name, value) for value in values]


def _number(name: str, value: Any) -> float:
    """Raises InputError: it is not a number."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError("a text is not a number")
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} {value!r:.40}: give a number") from None


def _term(name: str, value: Any) -> float | None:
    return None if value is None else _number(name, value)


def _with_unit(columns: Columns, unit: str | None, *, is_named: bool) -> Columns:
    """`is_named`: whether names of columns tell the unit.

    Raises ValueError: it is not a unit, or one too many.
    """
    if unit is None and (is_named or columns.seconds is not None):
        return columns
    unit = "units" if unit is None else unit
    if not (unit.strip() and unit.isprintable() and len(unit) <= LONGEST_UNIT):
        raise ValueError(
            f"unit {unit[:LONGEST_UNIT]!r}: give 1 to {LONGEST_UNIT} printable characters, such as "
            "tokens"
        )
    if columns.seconds is not None:
        raise ValueError(
            f"unit {unit!r}: seconds and devices make device-hours; leave one of them out"
        )
    return replace(columns, unit=unit)
