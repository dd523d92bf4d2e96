"""A file that is written anew under the running forecaster: nothing of what it was before is left
anywhere.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollcast.curves.sources.run_folder import RunFolder, history_of_folder
from testkit.forecaster.recorded_run import Reading, record, run_file
from testkit.forecaster.service_process import running, wait_for
from testkit.forked_programs import ForkedPrograms

OLD, NEW = record(16, asymptote=0.85), record(12, asymptote=0.6, seed=1)


def lines_of(points: list[Reading]) -> str:
    records = [
        vars(point) | {"run": "demo", "compute_device_hours": point.compute} for point in points
    ]
    return "".join(json.dumps(one) + "\n" for one in records)


def as_csv(points: list[Reading]) -> str:
    rows = (f"{point.step},{point.compute!r},{point.pass_rate!r}\n" for point in points)
    return "step,compute_device_hours,pass_rate\n" + "".join(rows)


@pytest.mark.parametrize("kind", ["scrape", "files"])
def test_the_forecaster_forgets_what_the_file_no_longer_tells(
    kind: str, tmp_path: Path, services: ForkedPrograms
) -> None:
    """The new curve has other values at the same steps, and ends earlier: the old points stayed on
    both counts.
    """
    source: dict[str, object] = {"kind": kind, "every_seconds": 0.2}
    file, write = tmp_path / "demo" / "evaluations.jsonl", lines_of
    if kind == "files":
        file, write = tmp_path / "curve.csv", as_csv
        source["curves"] = [{"run": "demo", "path": str(file)}]
    config = run_file(tmp_path, source, budget={"device_hours": 2.0})
    file.parent.mkdir(exist_ok=True)
    (file.parent / "format.json").write_text('{"format": 1}')
    file.write_text(write(OLD))
    with running(config, tmp_path, services) as service:
        service.wait_points(16)
        file.write_text(write(NEW[:8]))
        answer = wait_for(lambda: (said := service.forecast()) and said["num_points"] == 8 and said)
        assert (answer["num_lost"], answer["step"]) == (0, NEW[7].step)
        with file.open("a") as more:
            more.write(write(NEW).removeprefix(write(NEW[:8])))
        answer = service.wait_points(12)
        points = service.client.get("/api/runs/demo/points").json()["points"]
        assert [point["pass_rate"] for point in points] == [point.pass_rate for point in NEW]
        said = service.client.get("/api/runs/demo/history").json()["forecasts"]
        assert [entry["num_points"] for entry in said] == list(range(2, 13))
        assert max(entry["pass_rate"] for entry in said) < 0.65, (
            "no forecast of the old curve is left"
        )
        assert service.stop() == 0
    # Nor is anything of it left on the disk.
    with running(config, tmp_path, services) as service:
        assert service.wait_points(12)["asymptote"] == answer["asymptote"]
        assert service.client.get("/api/runs/demo/history").json()["forecasts"] == said


def test_a_file_that_was_emptied_leaves_no_forecast(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    file = tmp_path / "demo" / "evaluations.jsonl"
    config = run_file(tmp_path, {"kind": "scrape", "every_seconds": 0.2})
    file.parent.mkdir()
    (file.parent / "format.json").write_text('{"format": 1}')
    file.write_text(lines_of(OLD))
    with running(config, tmp_path, services) as service:
        service.wait_points(16)
        file.write_text("")
        wait_for(lambda: service.forecast() is None)
        assert service.client.get("/api/runs").json()["runs"] == []
        assert 'run="demo"' not in "".join(
            line
            for line in service.client.get("/metrics").text.splitlines()
            if "forecast_asymptote" in line
        )


def test_a_table_that_is_written_whole_at_every_evaluation_keeps_its_past_forecasts(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    """So does many a trainer; what a new file tells again is not void."""
    file = tmp_path / "curve.csv"
    curves = [{"run": "demo", "path": str(file)}]
    config = run_file(tmp_path, {"kind": "files", "every_seconds": 0.2, "curves": curves})
    (tmp_path / "demo").mkdir()
    file.write_text(as_csv(OLD[:10]))
    with running(config, tmp_path, services) as service:
        service.wait_points(10)
        before = service.client.get("/api/runs/demo/history").json()["forecasts"]
        file.write_text(
            as_csv(OLD[:11]).replace("step,", " step,")
        )  # another beginning than before
        service.wait_points(11)
        assert (
            service.client.get("/api/runs/demo/history").json()["forecasts"][: len(before)]
            == before
        )


def test_what_older_incarnations_lost_is_void_with_their_file(tmp_path: Path) -> None:
    """The starts of the old file cut the new curve short; those that incarnations.jsonl goes on to
    tell stay.
    """
    file, incarnations = tmp_path / "evaluations.jsonl", tmp_path / "incarnations.jsonl"
    (tmp_path / "format.json").write_text('{"format": 1}')
    file.write_text(lines_of(OLD))
    incarnations.write_text(
        '{"incarnation": 1, "started_from": 0}\n{"incarnation": 2, "started_from": 35}\n'
    )
    folder = RunFolder(tmp_path, "demo")
    assert folder.read().starts == {"demo": {1: 0, 2: 35}}
    file.write_text(lines_of(NEW))
    reading = folder.read()
    assert (reading.replaced_runs, reading.starts) == ({"demo"}, {"demo": {1: 0, 2: 35}})
    incarnations.write_text('{"incarnation": 1, "started_from": 0, "at": 5.0}\n')
    reading = folder.read()
    assert (reading.replaced_runs, reading.starts, len(reading.evaluations)) == (
        {"demo"},
        {"demo": {1: 0}},
        12,
    )
    assert [item.step for item in history_of_folder(tmp_path, "demo")[0].evaluations] == [
        item.step for item in NEW
    ]
    assert not folder.read().replaced_runs
