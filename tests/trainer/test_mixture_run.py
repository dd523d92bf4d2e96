"""The controller's loop over a mixture with downstream sets: every curve of its own, also over a
restart.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.curves.columns.choices import Columns
from rollcast.curves.curve_source import read_curve
from rollcast.curves.sources.run_folder import RunFolder
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.local.status import StatusReader
from rollcast.runfolder.folder import mark_format
from rollcast.tasks.prompt import Prompt
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.build import build_controller
from rollcast.trainer.control.controller import Controller
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.prompt_book import Books, PromptBook
from rollcast.trainer.ending import TrainerEnding
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.memory import MemoryBroker
from testkit.system.audit import check_every_task_once
from testkit.trainer.quick_control import (
    AnsweringQueue,
    Answers,
    CharTokenizer,
    QuickLearners,
    lines,
    run,
)

OWN, AIME, LCB = "both", "downstream:aime", "downstream:lcb"


def make_config(folder: Path, steps: int) -> RunConfig:
    def generated(name: str) -> dict[str, Any]:
        return {"kind": "countdown", "name": name, "size": 50}

    return parse_run_config(
        {
            "run": "r",
            "folder": str(folder),
            "model": {"path": "none", "max_length": 64},
            "tasks": {
                "dataset": {
                    "kind": "mixture",
                    "name": OWN,
                    "parts": [
                        {"dataset": generated("math"), "weight": 3},
                        {"dataset": generated("code")},
                    ],
                },
                "evaluation": {"rollouts_per_prompt": 2, "every_steps": 2},
                "downstream": [
                    {"dataset": generated("aime"), "rollouts_per_prompt": 5},
                    {"dataset": generated("lcb"), "every_steps": 4, "rollouts_per_prompt": 1},
                ],
            },
            "recipe": {
                "schedule": {"kind": "pipeline", "max_staleness": 3},
                "prompts_per_step": 4,
                "rollouts_per_prompt": 3,
                "max_prompt_tokens": 8,
                "max_completion_tokens": 8,
                "length_control": {"kind": "none"},
                "no_positive_resampling": None,
            },
            "trainer": {"checkpoint_every_steps": 3},
            "budget": {"steps": steps},
            "rpc": {"port": 0},
        },
        source="test",
    )


def book(**counts: int) -> PromptBook:
    prompts = [
        Prompt(f"{name}{i}", name, f"{name}{i}", '""', "exact")
        for name in counts
        for i in range(counts[name])
    ]
    return PromptBook(prompts, CharTokenizer(), max_prompt_tokens=16)


def make_controller(
    config: RunConfig,
    queue: AnsweringQueue,
    answers: Answers,
    learners: QuickLearners,
    progress: Progress | None,
) -> Controller:
    config.run_folder.mkdir(parents=True, exist_ok=True)
    mark_format(config.run_folder)
    group: Any = learners
    exporter = Exporter("r")
    controller = build_controller(
        config,
        learners=group,
        queue=queue,
        books=Books(
            train=book(math=30, code=30),
            held_out=book(math=2, code=3),
            downstream={AIME: book(aime=4), LCB: book(lcb=2)},
        ),
        encode=lambda text: [],
        exporter=exporter,
        progress=progress or Progress(),
        stop_requested=lambda: False,
    )
    answers.version = controller.state.version
    return controller


def steps_by_dataset(config: RunConfig) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for line in lines(config, "evaluations.jsonl"):
        found.setdefault(line["dataset"], []).append(line["step"])
    return found


def test_every_set_has_its_curve_and_the_parts_their_shares(tmp_path: Path) -> None:
    config = make_config(tmp_path, steps=10)
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(0))
    controller = make_controller(
        config, AnsweringQueue(MemoryBroker(), answers), answers, QuickLearners(), None
    )
    assert run(controller, answers) is TrainerEnding.FINISHED
    evens = [0, 2, 4, 6, 8, 10]
    assert steps_by_dataset(config) == {
        OWN: evens,
        "part:math": evens,
        "part:code": evens,
        AIME: [0, 3, 6, 9, 10],
        LCB: [0, 4, 8, 10],
    }
    samples = {
        line["dataset"]: (line["num_prompts"], line["samples"])
        for line in lines(config, "evaluations.jsonl")
    }
    assert samples == {
        OWN: (5, 10),
        "part:math": (2, 4),
        "part:code": (3, 6),
        AIME: (4, 20),
        LCB: (2, 2),
    }
    rates = {
        (line["dataset"], line["step"]): line["pass_rate"]
        for line in lines(config, "evaluations.jsonl")
    }
    for step in evens:
        mean = 0.75 * rates["part:math", step] + 0.25 * rates["part:code", step]
        assert rates[OWN, step] == pytest.approx(mean)
    drawn = [controller.state.curriculum.draw() for _ in range(40)]
    assert Counter(str(prompt_id).rstrip("0123456789") for prompt_id in drawn) == {
        "math": 30,
        "code": 10,
    }


def test_fewer_unique_prompts_are_fewer_of_every_part(tmp_path: Path) -> None:
    config = make_config(tmp_path, steps=8)
    config = config.model_copy(
        update={"recipe": config.recipe.model_copy(update={"unique_prompts": 6})}
    )
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(2))
    controller = make_controller(
        config, AnsweringQueue(MemoryBroker(), answers), answers, QuickLearners(), None
    )
    drawn = {str(controller.state.curriculum.draw()) for _ in range(60)}
    assert Counter(prompt_id.rstrip("0123456789") for prompt_id in drawn) == {"math": 3, "code": 3}


def test_a_restart_repeats_no_evaluation_that_was_closed_before_the_checkpoint(
    tmp_path: Path,
) -> None:
    config, broker = make_config(tmp_path, steps=12), MemoryBroker()
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(1))
    learners = QuickLearners()
    first = make_controller(config, AnsweringQueue(broker, answers), answers, learners, None)
    first._reporter.record_start()

    def save(version: PolicyVersion, state: dict[str, Any]) -> Any:
        if version.step == 9:
            raise KeyboardInterrupt
        return QuickLearners.save(learners, version, state)

    learners.save = save  # type: ignore[method-assign]
    with contextlib.suppress(KeyboardInterrupt):
        run(first, answers)
    del learners.save
    progress = Progress.from_json(learners.saved["1.6"])
    second = make_controller(config, AnsweringQueue(broker, answers), answers, learners, progress)
    second._reporter.record_start()
    assert run(second, answers) is TrainerEnding.FINISHED
    check_every_task_once(lines(config, "tasks.jsonl"))
    again = {
        name: [
            line["step"] for line in lines(config, "evaluations.jsonl") if line["dataset"] == name
        ]
        for name in (OWN, AIME, LCB)
    }
    evaluated = {name: [s for s in steps if s > 6] for name, steps in again.items()}
    assert evaluated[OWN][-3:] == [8, 10, 12]
    assert evaluated[AIME][-2:] == [9, 12]
    assert evaluated[LCB][-2:] == [8, 12]
    # A point of the checkpoint's own step may come twice, from before and after the kill; older
    # ones never.
    for name, steps in again.items():
        early = Counter(step for step in steps if step < 6)
        assert set(early.values()) == {1}, (name, steps)


def test_readers_of_the_curve_get_the_mixtures_and_the_forecaster_the_others_too(
    tmp_path: Path,
) -> None:
    config = make_config(tmp_path, steps=10)
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(2))
    controller = make_controller(
        config, AnsweringQueue(MemoryBroker(), answers), answers, QuickLearners(), None
    )
    assert run(controller, answers) is TrainerEnding.FINISHED
    written = config.run_folder / "evaluations.jsonl"
    # No compute is spent in this test; the order is the worst that could come: the curve's points
    # last.
    rows = [
        line | {"compute_device_hours": line["step"] / 10} for line in lines(config, written.name)
    ]
    rows.sort(key=lambda row: (row["step"], row["dataset"] == OWN))
    written.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = [(row["step"], row["pass_rate"]) for row in rows if row["dataset"] == OWN]

    board = Board()
    engine = ForecastEngine(board, History(tmp_path / "history.sqlite"), ForecastMetrics("r"))
    engine.take(RunFolder(config.run_folder, "r").read())
    curves = {item.name: [(e.step, e.pass_rate) for e in item.evaluations] for item in board.all()}
    assert set(curves) == {"r", f"r:{AIME}", f"r:{LCB}", "r:part:math", "r:part:code"}
    assert curves["r"] == own

    assert [
        (point.step, point.pass_rate) for point in StatusReader(config).read().evaluations
    ] == own
    for columns, dataset in (
        (Columns(), OWN),
        (Columns(where=("dataset=part:math",)), "part:math"),
    ):
        curve = read_curve(str(written), columns, None)
        wanted = [row["pass_rate"] for row in rows if row["dataset"] == dataset]
        assert [curve.initial, *curve.pass_rate] == wanted
