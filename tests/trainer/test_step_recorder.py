"""Which steps are kept, and why: conditions, the ring of the last steps, and the bound on bytes."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from rollcast.config.record import StepRecording
from rollcast.recorded.recorded_index import RecordedIndex
from rollcast.recorded.step_bundle import load_step
from rollcast.runfolder.folder import mark_format
from rollcast.runfolder.records import EvaluationRecord, as_json
from rollcast.runfolder.writing import append_line
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.prometheus_reader import parse_page
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.learner import Learner
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.replay.program import replay
from testkit.tiny_model import make_tiny_model
from testkit.trainer.recorded_run import make_recorded_run, recorded_config
from tests.trainer.recorded_steps import make_recorder, record_steps, recording_config, slow_disk

Kept = list[tuple[str, list[str]]]


def kept(folder: Path) -> Kept:
    return [(entry.name, entry.conditions) for entry in RecordedIndex.read(folder).steps]


def make_run(tmp_path: Path, ranks: Ranks, record: dict[str, Any], **sections: Any) -> Path:
    make_tiny_model(tmp_path / "model", hidden=32, max_length=128)
    config = recorded_config(
        tmp_path / "model",
        tmp_path / "runs",
        **sections,
        record={"every_steps": None, "weights": "none", **record},
    )
    make_recorded_run(config, ranks)
    return config.run_folder


def fail_once(monkeypatch: pytest.MonkeyPatch, at: int, result: float | Exception) -> None:
    """The gradient of the `at`-th update is not finite, or fails."""
    clip = Learner._clip
    calls = []

    def spoilt(learner: Learner, gradients: list[Tensor], squares: float) -> float:
        calls.append(1)
        if len(calls) != at:
            return clip(learner, gradients, squares)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(Learner, "_clip", spoilt)


def test_a_gap_keeps_its_step_and_those_before(tmp_path: Path, ranks: Ranks) -> None:
    """Tokens of older weights at this learning rate are far from the trainer's."""
    run = make_run(tmp_path, ranks, {"on": ["gap"]})
    assert kept(run) == [("step-1", []), ("step-2", ["gap"]), ("step-3", ["gap"])]
    assert load_step(run / "recorded" / "step-2").conditions == ("gap",)


def test_a_gradient_that_is_not_finite_keeps_the_update_that_was_skipped(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(monkeypatch, 2, float("inf"))
    run = make_run(tmp_path, ranks, {"on": ["non_finite"]})
    assert kept(run) == [("step-1", []), ("step-2-skipped", ["non_finite"])]
    report = replay(load_step(run / "recorded" / "step-2-skipped"), ranks)
    assert report.disagreeing == ()


def test_a_trainer_that_fails_writes_its_last_steps_and_the_one_under_way(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(monkeypatch, 3, RuntimeError("the card has gone"))
    with pytest.raises(RuntimeError, match="the card has gone"):
        make_run(tmp_path, ranks, {"on": ["failed"]})
    run = tmp_path / "runs" / "recorded"
    assert kept(run) == [("step-1", []), ("step-2", []), ("step-3-failed", ["failed"])]
    bundle = load_step(run / "recorded" / "step-3-failed")
    assert bundle.error == "RuntimeError: the card has gone"
    assert bundle.groups
    report = replay(bundle, ranks)
    assert report.disagreeing == ()
    reasons = {item.reason for item in report.comparisons if item.state == "not checked"}
    assert "the update did not finish" in reasons


def test_a_curve_that_breaks_keeps_the_newest_steps(
    untied_model: Path, tmp_path: Path, ranks: Ranks
) -> None:
    config = recording_config(
        untied_model, tmp_path, every_steps=None, on=["broken"], weights="none"
    )
    learners = LearnerGroup.build(config, ranks)
    recorder = make_recorder(config, learners, Exporter("test"))
    record_steps(config, learners, recorder, range(2))
    mark_format(config.run_folder)
    for number in range(24):
        rate = 0.1 + 0.05 * number if number < 12 else max(0.02, 0.65 - 0.2 * (number - 11))
        point = EvaluationRecord(1, 10 * number, rate, 0.1 * number, standard_error=0.01)
        append_line(config.run_folder / "evaluations.jsonl", as_json(point))
    recorder.note_evaluation()
    recorder.note_evaluation()
    recorder.close(60)
    assert kept(config.run_folder) == [("step-1", []), ("step-2", ["broken"])], "once"


def test_a_run_keeps_no_more_bytes_than_it_may(
    untied_model: Path, tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest step stays, then the worst one."""
    config = recording_config(
        untied_model, tmp_path, on=["non_finite"], weights="step", max_bytes=1 << 20
    )
    learners = LearnerGroup.build(config, ranks)
    exporter = Exporter("test")
    recorder = make_recorder(config, learners, exporter)
    fail_once(monkeypatch, 2, float("inf"))
    record_steps(config, learners, recorder, range(40))
    recorder.close(60)
    folder = config.run_folder / "recorded"
    files = [path for path in folder.rglob("*.*") if path.is_file() and path.name != "index.json"]
    assert sum(path.stat().st_size for path in files) <= 1 << 20
    names = [name for name, _ in kept(config.run_folder)]
    assert "step-2-skipped" in names
    assert names[-1] == "step-40"
    assert len(names) < 40
    page = {
        (item.name, item.labels.get("reason")): item.value
        for item in parse_page(exporter.render().decode())
    }
    dropped = page["rollcast_recorder_dropped_total", "max_bytes"]
    assert dropped == 40 - len(names), "what is removed is counted"
    for name in names:
        bundle = load_step(folder / name)
        assert bundle.version in bundle.kept_versions


@pytest.mark.parametrize("weights", ["step", "versions"])
def test_the_last_steps_and_their_weights_never_take_the_room_of_a_worse_step(
    untied_model: Path,
    tmp_path: Path,
    ranks: Ranks,
    monkeypatch: pytest.MonkeyPatch,
    weights: str,
) -> None:
    """The weights of thirteen versions, which the next recorded step may need, fill the room."""
    config = recording_config(
        untied_model,
        tmp_path,
        every_steps=None,
        on=["non_finite", "failed"],
        weights=weights,
        max_bytes=1 << 20,
    )
    learners = LearnerGroup.build(config, ranks)
    recorder = make_recorder(config, learners, Exporter("test"))
    if weights == "step":
        recorder._store.max_bytes = 400_000
    fail_once(monkeypatch, 2, float("inf"))
    record_steps(config, learners, recorder, range(20))
    recorder.fail(RuntimeError("the end"))
    recorder.close(60)
    folder = config.run_folder / "recorded"
    files = [path for path in folder.rglob("*.*") if path.is_file() and path.name != "index.json"]
    assert sum(path.stat().st_size for path in files) <= recorder._store.max_bytes
    names = [name for name, _ in kept(config.run_folder)]
    assert "step-2-skipped" in names
    assert names[-1] == "step-20"
    assert "step-1" not in names, "the ring's ordinary steps are newer"
    assert names == sorted(names, key=lambda name: int(name.split("-")[1]))
    needed = {"1.1", *(f"1.{step}" for step in range(11 if weights == "versions" else 19, 20))}
    versions = load_step(folder / "step-20").kept_versions
    assert needed <= {str(version) for version in versions}


def test_a_trainer_that_starts_again_goes_on_with_what_is_there(
    untied_model: Path, tmp_path: Path, ranks: Ranks
) -> None:
    config = recording_config(untied_model, tmp_path)
    learners = LearnerGroup.build(config, ranks)
    for steps in (range(2), range(1, 3)):
        recorder = make_recorder(config, learners, Exporter("test"))
        record_steps(config, learners, recorder, steps)
        recorder.close(60)
        (config.run_folder / "recorded" / ".step-9").mkdir()
    make_recorder(config, learners, Exporter("test")).close(60)
    assert [name for name, _ in kept(config.run_folder)] == ["step-1", "step-2", "step-3"]
    assert not (config.run_folder / "recorded" / ".step-9").exists(), "half-written"


def test_a_disk_that_refuses_is_counted_and_ends_no_run(
    untied_model: Path, tmp_path: Path, ranks: Ranks
) -> None:
    config = recording_config(untied_model, tmp_path)
    learners = LearnerGroup.build(config, ranks)
    exporter = Exporter("test")
    config.run_folder.mkdir(parents=True)
    (config.run_folder / "recorded").write_text("no folder")
    recorder = make_recorder(config, learners, exporter)
    record_steps(config, learners, recorder, range(1))
    recorder.close(60)
    page = {
        (item.name, item.labels.get("reason")): item.value
        for item in parse_page(exporter.render().decode())
    }
    assert page["rollcast_recorder_dropped_total", "disk"] == 3, "folder, weights, step"


def test_steps_are_kept_while_weights_wait_for_a_slow_disk(
    untied_model: Path, tmp_path: Path, ranks: Ranks
) -> None:
    config = recording_config(untied_model, tmp_path)
    learners = LearnerGroup.build(config, ranks)
    exporter = Exporter("test")
    recorder = make_recorder(config, learners, exporter)
    with slow_disk(recorder):
        record_steps(config, learners, recorder, range(3))
    recorder.close(60)
    assert [name for name, _ in kept(config.run_folder)] == ["step-1", "step-2", "step-3"]
    for number in (1, 2, 3):
        assert load_step(config.run_folder / "recorded" / f"step-{number}").digests_after
    page = {
        (item.name, item.labels.get("reason")): item.value
        for item in parse_page(exporter.render().decode())
    }
    assert page["rollcast_recorder_dropped_total", "slow_disk"] == 2, "weights of two versions"


def test_a_full_disk_keeps_nothing_half_written(
    untied_model: Path, tmp_path: Path, ranks: Ranks
) -> None:
    config = recording_config(untied_model, tmp_path)
    learners = LearnerGroup.build(config, ranks)
    folder = config.run_folder / "recorded"
    recorder = make_recorder(config, learners, Exporter("test"))
    record_steps(config, learners, recorder, range(1))
    recorder.close(60)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    recorder = make_recorder(config, learners, Exporter("test"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, hard))  # bytes of a file
    try:
        record_steps(config, learners, recorder, range(1, 2))
        recorder.close(60)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {str(path.relative_to(folder)) for path in folder.rglob("*")} == names


def test_steps_outlive_a_list_that_cannot_be_read(
    untied_model: Path, tmp_path: Path, ranks: Ranks
) -> None:
    config = recording_config(untied_model, tmp_path, weights="step")
    learners = LearnerGroup.build(config, ranks)
    for steps in (range(2), range(2, 3)):
        recorder = make_recorder(config, learners, Exporter("test"))
        record_steps(config, learners, recorder, steps)
        recorder.close(60)
        before = RecordedIndex.read(config.run_folder).steps
        (config.run_folder / "recorded" / "index.json").write_text('{"steps": 3}')
    make_recorder(config, learners, Exporter("test")).close(60)
    recorder = make_recorder(config, learners, Exporter("test"))
    record_steps(config, learners, recorder, range(3, 4))
    recorder.close(60)
    after = RecordedIndex.read(config.run_folder).steps
    assert after[:3] == before
    assert [entry.name for entry in after] == [f"step-{number}" for number in range(1, 5)]


def test_settings_that_record_nothing_are_off() -> None:
    assert not StepRecording().is_on
    assert StepRecording(on=("gap",)).is_on
    with pytest.raises(ValueError, match="unknown"):
        StepRecording.model_validate({"on": ["unknown"]})
