"""Committed benchmark results: every target in them was met, and the figures in the docs are those
of the files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testkit import record

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FLEETS = {
    "fixed": "fixed, the smallest that will do at the end",
    "rollcast": "**autoscaler** (controller; an HPA with tolerance 0 does the same)",
    "rollcast_second_seed": "autoscaler, other seed",
    "rollcast_by_hpa_tolerance_10_percent": "autoscaler through an HPA with tolerance 10 %",
    **{
        f"hpa_waiting_{per_pod}_per_pod": f"HPA on waiting tasks, {per_pod} per pod"
        for per_pod in ("0.25", "0.5", "1")
    },
    **{
        f"hpa_unfinished_{per_pod}_per_pod": f"HPA on unfinished tasks, {per_pod} per pod"
        for per_pod in "345"
    },
}
"""Scenario "growth": run in the file -> its row in docs/autoscaling.md."""


def _figures(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        pytest.skip(
            f"benchmarks/results/{name}.json is not there: python -m benchmarks.{name} writes it"
        )
    figures: dict[str, Any] = json.loads(path.read_text())["figures"]
    return figures


@pytest.mark.parametrize(
    "path",
    sorted([*RESULTS.glob("*.json"), *record.LAB_RESULTS.glob("*.json")]),
    ids=lambda path: path.stem,
)
def test_every_file_is_json_that_any_reader_takes(path: Path) -> None:
    text = path.read_text()
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert not re.search(r'"[^"]*(?<![\w.])/(home|root|tmp|work)/', text), "a path of a machine"


def test_what_json_has_no_number_for_is_written_as_null(tmp_path: Path) -> None:
    path = record.write_result(
        "odd",
        {"rows": [(1.5, float("nan"))], "most": float("inf"), "least": np.float64("nan")},
        tmp_path,
    )
    figures = json.loads(
        path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON")
    )["figures"]
    assert figures == {"rows": [[1.5, None]], "most": None, "least": None}


@pytest.mark.parametrize("name", ["autoscaler", "elastic", "memory", "record"])
def test_every_target_was_met(name: str) -> None:
    targets = _figures(name)["targets"]
    assert targets
    assert [target for target, met in targets.items() if met is not True] == []


def test_the_page_says_how_adapters_compare_with_every_weight() -> None:
    figures = _figures("lora")
    page = " ".join((ROOT / "docs" / "models.md").read_text().split())
    lora, full = (figures["summary"][kind] for kind in ("lora", "full"))
    assert len(figures["seeds"]) == 5
    for sentence in (
        f"(five seeds, {figures['steps']} steps, rank {figures['rank']})",
        f"a pass rate of {lora['last_pass_rate']:.2f}, every weight {full['last_pass_rate']:.2f} "
        "(deviations "
        f"{lora['last_pass_rate_deviation']:.2f} and {full['last_pass_rate_deviation']:.2f})",
        (
            f"{lora['bytes_of_a_version'] / 1e6:.2f} MB instead of "
            f"{full['bytes_of_a_version'] / 1e6:.2f}"
        ),
        f"{lora['update_seconds']:.2f} s instead of {full['update_seconds']:.2f}, "
        f"a step {lora['seconds_a_step']:.2f} s instead of {full['seconds_a_step']:.2f}",
    ):
        assert sentence in page


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def test_the_page_says_what_the_autoscaler_saved() -> None:
    figures = _figures("autoscaler")
    page = " ".join((ROOT / "docs" / "autoscaling.md").read_text().split())
    growth, still, step, stragglers = (
        figures[name] for name in ("growth", "stationary", "step", "stragglers")
    )
    first, peak = (
        figures["smallest_fixed_at_2000_tokens"],
        figures["smallest_fixed_at_10000_tokens"],
    )
    same = "rollcast_by_hpa_tolerance_0"
    assert set(growth) == set(FLEETS) | {same}
    assert growth[same] == growth["rollcast"]
    more, from_more = (
        _percent(still[run]["more"]) for run in ("rollcast", "rollcast_from_a_quarter_more")
    )
    idle, fixed_idle = (_percent(still[run]["idle"]["all"]) for run in ("rollcast", "fixed"))
    up, down = (
        f"from {run['generators_first']} to {run['generators_last']}"
        for run in (step["up"], step["down"])
    )
    waits = _percent(stragglers["with"]["idle"]["straggler"])
    most, most_without = (stragglers[run]["generators_most"] for run in ("with", "without"))
    longest = growth["rollcast"]["longest_group_steps"]
    sentences = [
        (
            f"over {growth['fixed']['steps']:,} steps, so that the need grows from {first} "
            f"generators to {peak}:"
        ),
        f"{more} more device-hours than the smallest fixed fleet,",
        f"{from_more} when the run begins with a quarter too many;",
        f"the trainer idles {idle} instead of {fixed_idle}.",
        f"double suddenly: {up} generators, {_turns(step['up'])} by more than one generator.",
        f"That halve: {down}, {_turns(step['down'])}.",
        (
            f"waits {waits} of the time for stragglers; most generators {most}, without them "
            f"{most_without}."
        ),
        f"the staleness bound of {figures['max_staleness']} in any of them;",
        f"the longest group of the growing run lasts {longest:.1f} steps.",
        *(
            f"| {label} | {growth[run]['device_hours']:,.0f} | {_percent(growth[run]['saved'])} | "
            f"{_percent(growth[run]['idle']['all'])} | "
            f"{_percent(growth[run]['idle_last_quarter']['all'])} |"
            for run, label in FLEETS.items()
        ),
    ]
    assert [sentence for sentence in sentences if sentence not in page] == []


def test_the_notes_say_how_near_the_count_of_memory_is() -> None:
    figures = _figures("memory")
    page = " ".join((ROOT / "lab" / "notes.md").read_text().split())
    step, publish, checkpoint, start = (
        _percent(figures["largest_error"][name])
        for name in ("step", "publish", "checkpoint", "start")
    )
    said = (
        f"at most {step} off at a step, {publish} when a version is staged, {checkpoint} at a "
        f"checkpoint, {start} while"
    )
    assert f"{said} the model is read" in page


def _turns(run: dict[str, Any]) -> str:
    return f"{run['turns']} turn{'' if run['turns'] == 1 else 's'}"


@pytest.mark.parametrize("result", ["images", "images_cuda"])
def test_the_sizes_of_the_images_are_those_measured(result: str) -> None:
    text = (ROOT / "docs" / "releases.md").read_text()
    for name, image in _figures(result)["images"].items():
        gigabytes, debian = image["bytes"] / 1e9, image["system_bytes"] / 1e9
        assert f"| {name} | {gigabytes:.2f} | {debian:.2f} | {image['seconds']:.0f} |" in text


PARTS_OF_THE_FIRST_HOUR = (
    ("rollcast init mine.yaml", "answered"),
    ("rollcast config check mine.yaml", "answered"),
    ("rollcast try --config mine.yaml", "answered"),
    ("rollcast up --config mine.yaml", "The start, when Ctrl-C is typed"),
    ("rollcast up --config mine.yaml", "Ended"),
    ("rollcast up --config mine.yaml", "Under way, when Ctrl-C is typed"),
    ("rollcast up --config mine.yaml", "Ended"),
    ("rollcast up --config runs/mine/up.json --resume", "Resumed"),
    ("rollcast show runs/mine", "answered"),
    ("rollcast up --config runs/mine/up.json --resume", "Finished"),
    ("rollcast show runs/mine", "answered"),
    ("rollcast fit runs/mine", "answered"),
    ("rollcast up --config other.yaml", "A second run with another seed, finished"),
    ("rollcast compare runs/mine runs/other", "answered"),
)
"""What a new user does, and the moment at which the screen is on the page; in this order."""


def test_the_first_hour_has_all_its_parts_in_the_file_and_on_its_page() -> None:
    """`up` runs the very file that `init` wrote; the first step's time has no screen."""
    seen = [one for one in _figures("first_hour")["commands"] if one["moment"] != "first step"]
    if not seen[0]["command"].startswith("rollcast init"):
        pytest.skip(
            "the file is of the script before this one: python -m benchmarks.first_hour "
            "--transcript PAGE"
        )
    page = (ROOT / "lab" / "first-hour.md").read_text()
    assert len(seen) == len(PARTS_OF_THE_FIRST_HOUR)
    place = 0
    for one, (command, moment) in zip(seen, PARTS_OF_THE_FIRST_HOUR, strict=True):
        assert one["command"].startswith(command)
        assert one["moment"].startswith(moment)
        heading = f"    $ {one['command']}\n\n{one['moment']}, after {one['seconds']} s:\n\n    "
        heading = heading.replace("answered, after", "answered after")
        place = page.index(heading, place) + 1


def test_the_tutorial_says_how_long_it_took() -> None:
    figures = _figures("tutorial")
    page = " ".join((ROOT / "docs" / "tutorial.md").read_text().split())
    commands = [one["command"] for one in figures["commands"]]
    assert [" ".join(command.split()[:2]) for command in commands] == [
        "rollcast model", "python make_data.py", "rollcast config", "rollcast up", "rollcast fit",
        "rollcast plan",
        "rollcast backtest",
    ]  # fmt: skip
    took = {
        command.split()[1]: round(one["seconds"])
        for command, one in zip(commands, figures["commands"], strict=True)
    }
    assert f"took {round(figures['seconds'] / 60, 1)} minutes on two cores" in page
    assert f"{took['model']} s for the model, {took['up']} s for the run" in page
