"""Runs of other trainers pushed to the real process: what is known twice, refused, restarted,
drawn.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

import rollcast
from rollcast.curves.evaluations import MAX_EVALUATIONS, CurvePoint
from rollcast.forecaster.engine import MAX_PUSHED_RUNS
from rollcast.forecaster.history import History, PushedRun
from rollcast.scaling.decisions.advice import advise
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve
from testkit.forecaster.recorded_run import TrainerPage, record, run_file
from testkit.forecaster.service_process import Service, running
from testkit.forked_programs import ForkedPrograms

TOKEN = "a secret of trainers"
POINTS: list[dict[str, Any]] = [
    {"step": r.step, "pass_rate": r.pass_rate, "standard_error": 0.01} for r in record() if r.step
]


def served(folder: Path, token: str | None = TOKEN, **more: object) -> Path:
    forecaster = {"source": {"kind": "scrape", "every_seconds": 0.2}, "http_port": 0}
    secret = {} if token is None else {"push_token": token}
    return run_file(folder, {}, forecaster=forecaster | secret, **more)


def push(
    service: Service, points: list[dict[str, Any]], token: str = TOKEN, **more: Any
) -> httpx.Response:
    body = {"run": "theirs", "points": points, **more}
    return service.client.post("/api/push", json=body, headers={"authorization": f"Bearer {token}"})


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, services: ForkedPrograms
) -> Iterator[Service]:
    """One for the tests that push a run of their own and change nothing else of it."""
    folder = tmp_path_factory.mktemp("shared")
    with running(served(folder), folder, services) as started:
        yield started


def known_before(folder: Path, runs: list[PushedRun], evaluations: list[CurvePoint]) -> None:
    """The history of a forecaster that runs were pushed to: it starts with them, and forecasts them
    once.
    """
    (folder / "demo").mkdir()
    with closing(History(folder / "demo" / "forecasts.sqlite")) as history:
        for run in runs:
            history.add_pushed(run)
        history.add_evaluations(evaluations)


def test_a_pushed_run_is_forecast_like_any_other_and_outlives_the_service(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    config = served(tmp_path)
    with running(config, tmp_path, services) as service:
        first = push(service, POINTS[:20], budget=580).json()
        assert (first["new"], first["repeated"]) == (20, 0)
        again = push(service, [*POINTS[10:20], *POINTS[20:22]]).json()
        assert (again["new"], again["repeated"]) == (2, 10)
        changed = [{**POINTS[0], "pass_rate": 0.9}]
        assert push(service, changed).json()["repeated"] == 1
        told = service.forecast("theirs")
        assert told is not None
        assert (told["num_points"], told["end"]["compute"]) == (22, 580.0)
        first_point = service.client.get("/api/runs/theirs/points").json()["points"][0]
        assert first_point["pass_rate"] == POINTS[0]["pass_rate"], "the first reading stands"
        assert service.stop() == 0
    with running(config, tmp_path, services) as service:
        assert service.wait_points(22, "theirs")["asymptote"] == told["asymptote"]
        answer = push(service, POINTS[22:], worth=0.01, price=2.0).json()
        steps = [float(point["step"]) for point in POINTS]
        curve = Curve.from_points(steps, [p["pass_rate"] for p in POINTS], [0.01] * len(POINTS))
        expected = advise(fit(curve), 580.0, worth=0.01, price=2.0)
        assert (answer["advice"], answer["headline"]) == (str(expected.kind), expected.headline)
        assert answer["metrics"]["rollcast/chance"] == pytest.approx(expected.chance)
        assert answer["metrics"]["rollcast/price_of_rest"] == pytest.approx(2.0 * (580 - steps[-1]))
        assert expected.rest.gain is not None
        assert answer["metrics"]["rollcast/gain_of_rest"] == pytest.approx(expected.rest.gain[1])
        assert all(
            name in answer["metrics"]
            for name in ("rollcast/end_low", "rollcast/end", "rollcast/end_high")
        )


def test_only_who_has_the_token_pushes(
    service: Service, tmp_path: Path, services: ForkedPrograms
) -> None:
    assert push(service, POINTS, token="another", run="guarded").status_code == 401
    assert (
        service.client.post("/api/push", json={"run": "guarded", "points": POINTS}).status_code
        == 401
    )
    assert service.forecast("guarded") is None
    assert push(service, POINTS[:5], run="guarded").status_code == 200
    with running(served(tmp_path, token=None), tmp_path, services) as closed:
        refused = push(closed, POINTS)
        assert (refused.status_code, "push_token" in refused.json()["detail"]) == (403, True)


def test_the_pages_token_and_that_of_trainers_are_two(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    with running(served(tmp_path, http={"token": "of readers"}), tmp_path, services) as service:
        assert push(service, POINTS, token="of readers").status_code == 401
        assert push(service, POINTS[:5]).status_code == 200
        for token, status in ((TOKEN, 401), ("of readers", 200)):
            asked = service.client.get(
                "/api/runs/theirs/forecast", headers={"authorization": f"Bearer {token}"}
            )
            assert asked.status_code == status


def test_what_cannot_be_is_refused_in_one_sentence_and_what_is_too_much_is_bounded(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    with TrainerPage("watched") as page:
        source = {
            "kind": "scrape",
            "every_seconds": 0.2,
            "urls": [f"http://127.0.0.1:{page.port}/metrics"],
        }
        for reading in record()[:5]:
            page.show(reading)
        forecaster = {"source": source, "http_port": 0, "push_token": TOKEN}
        known_before(
            tmp_path,
            [PushedRun(f"run-{number}", "steps", None) for number in range(MAX_PUSHED_RUNS - 2)],
            [],
        )
        with running(run_file(tmp_path, {}, forecaster=forecaster), tmp_path, services) as service:
            service.wait_points(5, "watched")
            for points, more, part in (
                ([{"step": 1, "pass_rate": 45}], {}, "pass_rate = 45"),
                ([{"step": -1, "pass_rate": 0.5}], {}, "step = -1"),
                ([{"step": 1, "pass_rate": 0.5, "compute": 1e13}], {}, "compute"),
                ([{"step": 1, "pass_rate": 0.5}] * 1001, {}, "at most 1000"),
                ([{"step": 1, "pass_rate": 0.5}], {"run": "a/b"}, "without a slash"),
                ([], {"run": "a/b"}, "without a slash"),
                ([{"step": 1, "pass_rate": 0.5}], {"run": ".."}, "neither . nor .."),
                ([{"step": 1, "pass_rate": 0.5}], {"run": "."}, "neither . nor .."),
                ([{"step": 1, "pass_rate": 0.5}], {"run": "demo"}, "the forecaster's own"),
                ([{"step": 1, "pass_rate": 0.5}], {"run": "watched"}, "is read from a source"),
                ([], {"run": "never seen"}, "push one point"),
                ([{"step": 1, "pass_rate": 0.5}], {"unit": "<b>"}, "unit"),
            ):
                answer = push(service, points, **more)
                assert (answer.status_code, part in answer.json()["detail"]) == (422, True), (
                    answer.text
                )
            assert push(service, POINTS[:6]).status_code == 200
            other_unit = push(service, POINTS[:1], unit="tokens")
            assert "counts steps, not tokens" in other_unit.json()["detail"]
            large = service.client.post(
                "/api/push", content=b"x" * (2 << 20), headers={"authorization": f"Bearer {TOKEN}"}
            )
            assert large.status_code == 413
            for number in (
                0,
                MAX_PUSHED_RUNS - 2,
            ):  # one that it knows, and the last one that there may be
                assert push(service, POINTS[:1], run=f"run-{number}").status_code == 200
            assert "the most" in push(service, POINTS[:1], run="one more").json()["detail"]
            assert push(service, POINTS[:1]).status_code == 200
            assert push(service, []).json()["step"] == POINTS[5]["step"], "asked without a point"
            metrics = service.client.get("/metrics").text
            assert 'run="theirs"' in metrics


def test_a_restart_of_the_trainer_takes_the_lost_steps_off(service: Service) -> None:
    push(service, POINTS[:12], run="restarted")
    answer = push(
        service, [{"step": 85, "pass_rate": 0.6, "incarnation": 2}], run="restarted"
    ).json()
    assert answer["new"] == 1
    told = service.forecast("restarted")
    assert told is not None
    assert (told["step"], told["num_lost"]) == (85, 4)


def test_what_a_source_tells_of_a_pushed_run_is_left_out_and_counted_once(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    """A trainer's page counts device-hours under a name that is pushed in steps."""
    with TrainerPage("theirs") as page:
        source = {
            "kind": "scrape",
            "every_seconds": 0.2,
            "urls": [f"http://127.0.0.1:{page.port}/metrics"],
        }
        forecaster = {"source": source, "http_port": 0, "push_token": TOKEN}
        with running(run_file(tmp_path, {}, forecaster=forecaster), tmp_path, services) as service:
            assert push(service, POINTS[:12]).json()["new"] == 12
            before = service.forecast("theirs")
            for reading in record(6, incarnation=2):
                page.show(reading)
            counted = 'rollcast_forecast_skipped_total{reason="run_is_pushed",run="demo"} 6.0'

            def skipped() -> list[str]:
                return [
                    line
                    for line in service.client.get("/metrics").text.splitlines()
                    if counted[:60] in line
                ]

            until = time.monotonic() + 20
            while skipped() != [counted] and time.monotonic() < until:
                time.sleep(0.1)
            time.sleep(1.0)  # five more looks at the source
            assert skipped() == [counted]
            assert service.forecast("theirs") == before
            again = push(service, [{**POINTS[12], "incarnation": 2}]).json()
            assert again["new"] == 1, "what was left out blocks no point of the trainer"


@pytest.mark.parametrize("unit", ["steps", "GPU-hours"])
def test_a_pushed_run_is_forecast_as_the_same_file_is(unit: str, service: Service) -> None:
    """Its first interval costs twice as much: a start-up in hours; in steps it is none."""
    points = [
        {**point, "compute": 20.0 + 20.0 * number}
        for number, point in enumerate(POINTS[:14], start=1)
    ]
    column = {"steps": "step", "GPU-hours": "gpu hours"}[unit]
    keys = {"steps": "compute", "GPU-hours": "compute"}[unit]
    rows = {
        column: [point[keys] for point in points],
        "pass_rate": [point["pass_rate"] for point in points],
        "standard_error": [0.01] * len(points),
    }
    if unit != "steps":
        rows["step"] = [point["step"] for point in points]
    expected = rollcast.forecast(rows, compute=column)
    assert expected.unit == unit
    push(service, points, unit=unit, run=unit)
    told = service.forecast(unit)
    assert told is not None
    assert told["verdict"] == expected.verdict
    asymptote = expected.to_dict()["asymptote"]
    assert told["asymptote"]["q50"] == pytest.approx(asymptote["q50"], abs=1e-9)
    assert told["asymptote"]["q05"] == pytest.approx(asymptote["q05"], abs=1e-9)


def test_a_full_run_takes_no_more_and_says_so(tmp_path: Path, services: ForkedPrograms) -> None:
    """All but the last three were pushed before it started: each of those that come is forecast
    from.
    """
    first = MAX_EVALUATIONS - 2
    known = [
        CurvePoint("full", "", 1, step, 0.5, float(step), None, None, None, float(step))
        for step in range(1, first)
    ]
    known_before(tmp_path, [PushedRun("full", "steps", None)], known)
    last = [{"step": step, "pass_rate": 0.5} for step in range(first, MAX_EVALUATIONS + 2)]
    with running(served(tmp_path), tmp_path, services) as service:
        assert service.wait_points(len(known), "full")["num_points"] == len(known)
        assert [push(service, part, run="full").json()["new"] for part in (last[:3], last[3:])] == [
            3,
            0,
        ]
        skipped = [
            line
            for line in service.client.get("/metrics").text.splitlines()
            if "too_many_evaluations" in line
        ]
        assert skipped[0].endswith(" 1.0")
