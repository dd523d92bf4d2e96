"""The advice that the service gives, on its API and among its metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import rollcast
from rollcast.scaling.law.curve import DEVICE_HOURS
from testkit.forecaster.recorded_run import record, run_file
from testkit.forecaster.recorded_service import SHOWN, serving_a_record
from testkit.forecaster.service_process import running
from testkit.forked_programs import ForkedPrograms


def test_api_and_metrics_give_the_advice_on_the_rest_of_the_budget(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    with serving_a_record(tmp_path, services, budget={"device_hours": 1.5}) as service:
        forecast = service.wait_points(SHOWN)
        told = forecast["advice"]
        assert told["budget"] == 1.5
        assert not told["is_assumed"]
        assert told["rest"]["compute"] == pytest.approx(1.5 - forecast["compute"])

        def asked(**query: float) -> dict[str, object]:
            answer = service.client.get("/api/runs/demo/advice", params=query)
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        assert asked() == told
        priced = asked(price=4.0, worth=told["worth"])
        assert priced["rest"] == told["rest"] | {
            "money": pytest.approx(4.0 * told["rest"]["compute"])
        }
        more = asked(worth=0.9)
        assert more["chance"] == 0.0
        assert more["kind"] == (
            "stop" if forecast["verdict"] in ("forecastable", "saturated") else "wait"
        )
        assert asked(budget=30.0)["rest"]["until"] == 30.0  # type: ignore[index]
        refused = service.client.get("/api/runs/demo/advice", params={"worth": 2.0})
        assert (refused.status_code, "worth" in refused.json()["detail"]) == (422, True)
        series = {
            (
                sample.name,
                *(value for name, value in sorted(sample.labels.items()) if name != "run"),
            ): sample.value
            for family in text_string_to_metric_families(service.client.get("/metrics").text)
            for sample in family.samples
        }
        kinds = {kind: series["rollcast_advice", kind] for kind in ("stop", "continue", "wait")}
        assert kinds == {kind: float(kind == told["kind"]) for kind in kinds}
        assert series["rollcast_advice_evaluations",] == told["evaluations"]
        assert series["rollcast_advice_chance",] == pytest.approx(told["chance"])
        assert series["rollcast_advice_device_hours", "soon"] == pytest.approx(
            told["soon"]["compute"]
        )
        assert series["rollcast_advice_gain", "0.95", "rest"] == pytest.approx(
            told["rest"]["gain"]["q95"]
        )


def test_a_run_of_another_framework_has_the_budget_that_its_curve_is_given(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    """In the unit of its curve, here steps; the run file's own budget is of another run."""
    points = record()[1:18]
    path = tmp_path / "theirs.csv"
    path.write_text(
        "step,reward\n" + "".join(f"{point.step},{point.pass_rate!r}\n" for point in points)
    )
    spent = points[-1].step
    other = {"run": "other", "path": str(path), "compute": "step"}
    theirs = other | {"run": "theirs", "budget": 4 * spent, "worth": 0.03, "price": 2.5}
    source = {"kind": "files", "every_seconds": 0.2, "curves": [theirs, other]}
    forecaster = {"source": source, "http_port": 0, "push_token": "a secret"}
    config = run_file(tmp_path, source, budget={"device_hours": 9.0}, forecaster=forecaster)
    with running(config, tmp_path, services) as service:
        forecast = service.wait_points(len(points), "theirs")
        advice = forecast["advice"]
        assert (forecast["unit"], advice["is_assumed"]) == ("steps", False)
        assert (advice["budget"], advice["worth"], advice["price"]) == (4 * spent, 0.03, 2.5)
        assert advice["rest"]["compute"] == 3 * spent
        assert advice["rest"]["money"] == pytest.approx(7.5 * spent)
        assert advice["reason"].startswith("The rest gains ")
        assert forecast["end"]["compute"] == 4 * spent
        mapping = {
            "step": [point.step for point in points],
            "reward": [point.pass_rate for point in points],
        }
        same = rollcast.forecast(mapping).advice(4.0 * spent, 0.03, 2.5)
        assert {name: advice[name] for name in ("kind", "chance", "rest")} == {
            name: same[name] for name in ("kind", "chance", "rest")
        }
        asked = service.client.get("/api/runs/theirs/advice", params={"worth": 0.3}).json()
        assert (asked["budget"], asked["worth"], asked["price"]) == (4 * spent, 0.3, 2.5)
        plain = service.wait_points(len(points), "other")["advice"]
        assert (plain["is_assumed"], plain["budget"], plain["price"]) == (True, 2 * spent, None)
        body = {"run": "theirs", "points": [{"step": 1, "pass_rate": 0.1}]}
        refused = service.client.post(
            "/api/push", json=body, headers={"authorization": "Bearer a secret"}
        )
        assert (refused.status_code, "is read from a source" in refused.json()["detail"]) == (
            422,
            True,
        )


def test_device_hours_are_metrics_of_runs_that_count_them(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    forecaster = {
        "source": {"kind": "scrape", "every_seconds": 0.2},
        "http_port": 0,
        "push_token": "a secret",
    }
    points = [
        {"step": r.step, "pass_rate": r.pass_rate, "standard_error": 0.01} for r in record()[1:12]
    ]
    with running(run_file(tmp_path, {}, forecaster=forecaster), tmp_path, services) as service:
        for unit in ("steps", DEVICE_HOURS):
            body = {"run": f"in {unit}", "unit": unit, "budget": 500, "points": points}
            answer = service.client.post(
                "/api/push", json=body, headers={"authorization": "Bearer a secret"}
            )
            assert answer.status_code == 200, answer.text
        runs = {
            family.name: {sample.labels.get("run") for sample in family.samples}
            for family in text_string_to_metric_families(service.client.get("/metrics").text)
        }
        for name in ("rollcast_advice_device_hours", "rollcast_forecast_end_device_hours"):
            assert runs[name] == {"in device-hours"}
        for name in ("rollcast_advice", "rollcast_forecast_end_pass_rate", "rollcast_advice_gain"):
            assert runs[name] == {"in device-hours", "in steps"}, name


def test_page_and_metrics_share_one_advice() -> None:
    """To find it costs as much as the rest of a refit; with another price it is another one."""
    readings = record()[:12]
    data = {"step": [r.step for r in readings], "pass_rate": [r.pass_rate for r in readings]}
    run = rollcast.forecast(data)._run
    assert run.advice() is run.advice()
    assert run.advice(price=2.0).rest.money == 2.0 * run.advice().rest.compute
