"""Every face says the same of a run: a curve that no law describes has no A, B, C_mid, R_0 or
headroom anywhere.

A run of too few evaluations has no advice in words, chance, end or band either; a broken one has no
end and no band.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rollcast
from rollcast.cli.screen.figures import forecast_words
from rollcast.curves.run_forecast import RunForecast, look_ahead, metric_grid
from rollcast.forecaster import answers
from rollcast.forecaster.forecast_log import ForecastLog
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.forecaster.own_curve import fit_answer
from rollcast.forecaster.push_api import _metrics
from rollcast.forecaster.schema import FitPoint, FitRequest
from rollcast.local.forecast_reading import forecast_here
from rollcast.local.status import RunStatus
from rollcast.loggers.entries import make_forecast_entry
from rollcast.runfolder.files import FORECASTS_SAID
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord, ForecastRecord
from rollcast.telemetry import forecaster_metrics
from testkit.forecaster.recorded_run import record
from tests.cli.command import rollcast as command

LAW = ("asymptote", "headroom", "exponent", "midpoint", "initial", "best", "ceiling_probability")
AHEAD = {
    metric.name
    for metric in (
        forecaster_metrics.FORECAST_END,
        forecaster_metrics.FORECAST_PASS_RATE,
        forecaster_metrics.ADVICE_CHANCE,
        forecaster_metrics.ADVICE_GAIN,
    )
}
"""Metrics of what is to come."""
WORDS = ("asymptote A", "headroom A", "exponent B", "midpoint, steps", "initial R_0")


def readings(jump: float) -> dict[str, list[float]]:
    """Seventeen evaluations; `jump`: pass rate that is added from the tenth on."""
    points = record()[1:18]
    rates = [point.pass_rate + jump * (place >= 9) for place, point in enumerate(points)]
    return {"step": [float(point.step) for point in points], "pass_rate": rates}


def run_of(jump: float) -> RunForecast:
    return rollcast.forecast(readings(jump), unit="device-hours", compute="step", budget=600.0)._run


@pytest.fixture(scope="module")
def jumped() -> RunForecast:
    run = run_of(0.15)
    assert str(run.forecast.verdict.kind) == "regime_change"
    return run


@pytest.fixture(scope="module")
def healthy() -> RunForecast:
    return run_of(0.0)


def written(path: Path, jump: float) -> Path:
    columns = readings(jump)
    rows = zip(columns["step"], columns["pass_rate"], strict=True)
    path.write_text("step,pass_rate\n" + "".join(f"{step},{rate}\n" for step, rate in rows))
    return path


def samples(run: RunForecast) -> set[str]:
    """Names of the series on the metrics page."""
    metrics = ForecastMetrics("own")
    metrics.show(run, look_ahead(run, metric_grid(run)), None)
    return {
        line.split("{")[0]
        for line in metrics.render().decode().splitlines()
        if not line.startswith("#")
    }


def logged(run: RunForecast, folder: Path) -> ForecastRecord:
    ForecastLog(folder, ForecastMetrics("own")).note(run)
    (record,) = RecordFile(folder / FORECASTS_SAID, ForecastRecord).read()
    return record


def own_curve(jump: float) -> dict[str, Any]:
    columns = readings(jump)
    points = [
        FitPoint(compute=compute, pass_rate=rate)
        for compute, rate in zip(columns["step"], columns["pass_rate"], strict=True)
    ]
    return fit_answer(FitRequest(points=points, predict=[500.0])).model_dump()


def test_the_command_and_python_give_no_law_of_a_jump(tmp_path: Path) -> None:
    jump = written(tmp_path / "jump.csv", 0.15)
    shown = command("fit", jump, "--target", 0.9)
    assert "regime change" in shown.stdout
    assert "No asymptote, headroom, exponent or midpoint is given" in shown.stdout
    for words in (*WORDS, "steps to 0.9"):
        assert words not in shown.stdout, words
    answer = json.loads(command("fit", jump, "--target", 0.9, "--json").stdout)
    assert (answer["is_described"], answer["is_decidable"]) == (False, False)
    assert [answer[name] for name in LAW] == [None] * len(LAW)
    assert answer["targets"] == [{"pass_rate": 0.9, "compute": None}]
    assert answer["predictions"][0]["q50"] > 0
    found = rollcast.forecast(jump)
    assert found.to_dict(target=[0.9]) == answer
    assert not {"asymptote", "headroom"} & set(
        found._repr_html_().replace("<", " ").replace(">", " ").split()
    )


def test_comparisons_give_no_law_of_a_jump(tmp_path: Path) -> None:
    sources = (written(tmp_path / "whole.csv", 0.0), written(tmp_path / "jump.csv", 0.15))
    whole, jump = json.loads(command("compare", *sources, "--json").stdout)["runs"]
    assert whole["asymptote"] is not None
    assert [
        jump[name] for name in ("asymptote", "exponent", "midpoint", "initial", "log_replot")
    ] == [None] * 5
    table = json.loads(command("compare", *sources, "--baseline", "whole", "--json").stdout)[
        "leave_one_out"
    ]
    _, row = table["rows"]
    assert {value for name, value in row.items() if name not in ("curve", "num_runs", "kind")} == {
        None
    }
    assert (row["kind"], table["not_described"]) == (
        "not compared: no law describes it, or the whole recipe",
        ["jump"],
    )
    shown = command(
        "compare", *sources, "--baseline", "jump", "--plot", tmp_path / "compare.svg"
    ).stdout
    assert "No law describes jump: no A, no B and no comparison is given." in shown
    assert "whole against jump" not in shown


def test_http_gives_no_law_of_a_jump(jumped: RunForecast, healthy: RunForecast) -> None:
    answer = answers.forecast_answer(jumped).model_dump()
    assert (answer["is_described"], answer["is_decidable"]) == (False, False)
    assert [answer[name] for name in LAW] == [None] * len(LAW)
    assert answer["end"]["gain"] is None
    assert answers.curve_answer(jumped, None).law is None
    assert answers.predictions(jumped, [500.0])[0].law is None
    assert answers.target_answer(jumped, 0.9).compute is None
    own = own_curve(0.15)
    assert [own[name] for name in LAW] == [None] * len(LAW)
    assert own["predictions"][0]["law"] is None

    answer = answers.forecast_answer(healthy).model_dump()
    assert answer["is_described"]
    assert None not in [answer[name] for name in LAW]
    assert answers.curve_answer(healthy, None).law is not None
    assert own_curve(0.0)["asymptote"] is not None


def test_metrics_log_trackers_and_screen_give_no_law_of_a_jump(
    jumped: RunForecast, healthy: RunForecast, tmp_path: Path
) -> None:
    law = {"rollcast_forecast_asymptote", "rollcast_forecast_headroom"}
    assert not samples(jumped) & law
    assert samples(healthy) >= law | AHEAD
    record = logged(jumped, tmp_path)
    assert (record.asymptote, record.headroom) == (None, None)
    assert record.end is not None
    assert not [
        name
        for name in make_forecast_entry(record).numbers
        if "asymptote" in name or "headroom" in name
    ]
    assert "rollcast/ceiling" not in _metrics(jumped, jumped.advice())
    assert "rollcast/ceiling" in _metrics(healthy, healthy.advice())
    evaluations = tuple(EvaluationRecord(1, step, 0.5, float(step)) for step in range(1, 8))
    for run, is_described in ((jumped, False), (healthy, True)):
        words = forecast_words(
            RunStatus(forecast=forecast_here(run, run.end), evaluations=evaluations)
        )
        assert any("ceiling" in word for word in words) is is_described, words


def test_an_earlier_forecast_of_a_jump_has_no_law(jumped: RunForecast) -> None:
    """The history of an earlier version holds numbers for it."""
    from rollcast.forecaster.history import KeptForecast

    five = (0.1, 0.2, 0.3, 0.4, 0.5)
    kept = KeptForecast(
        1, "run", 0.0, False, 17, 170.0, 0.7, "regime_change", five, five, None, None, (five,)
    )
    assert (answers.past_answer(kept).asymptote, answers.past_answer(kept).is_described) == (
        None,
        False,
    )


def run_of_rates(rates: list[float]) -> RunForecast:
    """Its first evaluation is at step 0, its budget twice its steps."""
    steps = [10.0 * place for place in range(len(rates))]
    columns = {"step": steps, "pass_rate": rates}
    return rollcast.forecast(
        columns, unit="device-hours", compute="step", budget=2 * steps[-1]
    )._run


def few() -> RunForecast:
    return run_of_rates([0.2, 0.25, 0.3, 0.33])


def fallen() -> RunForecast:
    noise = 0.004 * np.random.default_rng(0).standard_normal(40)
    return run_of_rates([*np.linspace(0.2, 0.6, 25) + noise[:25], *np.full(15, 0.3) + noise[25:]])


def dead() -> RunForecast:
    return run_of_rates([0.0] * 20)


@pytest.mark.parametrize(
    ("make", "verdict", "advice"),
    [(few, "too_few", "wait"), (fallen, "broken", "stop"), (dead, "no_learning", "stop")],
)
def test_every_face_has_the_verdict_and_its_advice(
    make: Any, verdict: str, advice: str, tmp_path: Path
) -> None:
    run = make()
    http = answers.forecast_answer(run)
    assert (http.verdict, http.advice.kind) == (verdict, advice)
    assert (http.num_points, http.num_at_start) == (len(run.evaluations), 1)
    assert [getattr(http, name) for name in LAW] == [None] * len(LAW)
    metrics = ForecastMetrics("own")
    metrics.show(run, look_ahead(run, metric_grid(run)), None)
    page = metrics.render().decode()
    assert f'rollcast_forecast_verdict{{run="{run.name}",verdict="{verdict}"}} 1.0' in page
    record = logged(run, tmp_path)
    assert (record.verdict, record.advice, record.headline) == (
        verdict,
        advice,
        http.advice.headline,
    )
    assert "None" not in make_forecast_entry(record).texts["forecast/advice"]
    assert _metrics(run, run.advice())["rollcast/stop"] == float(advice == "stop")


def test_too_few_evaluations_have_no_headline_chance_end_or_band_on_any_face(
    tmp_path: Path,
) -> None:
    run = few()
    http = answers.forecast_answer(run)
    assert (http.advice.headline, http.advice.chance, http.advice.evaluations, http.end) == (
        None,
        None,
        2,
        None,
    )
    assert set(answers.predictions(run, [50.0])[0].reading.model_dump().values()) == {None}
    curve = answers.curve_answer(run, None)
    assert (curve.compute, curve.q50, curve.law, curve.power_law) == ([], [], None, [])
    assert not samples(run) & AHEAD
    assert (logged(run, tmp_path).headline, logged(run, tmp_path).end) == (None, None)
    assert not [name for name in _metrics(run, run.advice()) if "end" in name or "chance" in name]
    reading = forecast_here(run, run.end)
    assert (reading.band, reading.end) == ((), None)
    own = fit_answer(FitRequest(points=[FitPoint(compute=1.0, pass_rate=0.3)], predict=[5.0]))
    assert (own.verdict, own.missing, own.predictions[0].reading.q50) == ("too_few", 4, None)


def test_a_broken_run_has_no_end_and_its_band_does_not_reach_beyond_now(tmp_path: Path) -> None:
    run = fallen()
    assert answers.forecast_answer(run).end is None
    assert max(answers.curve_answer(run, 10_000.0).compute) <= run.newest.compute
    assert not samples(run) & AHEAD
    assert logged(run, tmp_path).end is None
    assert answers.predictions(run, [5_000.0])[0].reading.q50 is not None


def test_a_run_that_learned_nothing_has_a_chance_and_a_band() -> None:
    run = dead()
    assert samples(run) >= AHEAD
    assert answers.forecast_answer(run).end is not None
