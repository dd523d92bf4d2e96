"""What `fit` and `show` say of evaluations that lack prompts."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import rollcast
from tests.cli.test_show import settings, trained, words

SAID = "1 evaluation with less than 90 % of the prompts graded left out"


def spoilt(folder: Path) -> None:
    """The newest evaluation lost half of its prompts, and all others of them were solved."""
    lines = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    lines[-1] |= {"pass_rate": 1.0, "num_prompts": 20, "asked_prompts": 40, "missing_prompts": 20}
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_fit_and_show_leave_an_incomplete_evaluation_out_and_say_so(tmp_path: Path) -> None:
    config = settings(tmp_path)
    trained(config)
    whole = json.loads(rollcast("fit", config.run_folder, "--json").stdout)
    spoilt(config.run_folder)
    answered = rollcast("fit", config.run_folder, "--json")
    assert answered.returncode == 0
    assert SAID in answered.stderr
    answer = json.loads(answered.stdout)
    assert (answer["incomplete"], answer["num_points"]) == (1, whole["num_points"] - 1)
    assert answer["pass_rate"] < 0.8
    assert whole["incomplete"] == 0
    shown = words(config.run_folder)
    assert SAID in shown
    assert "pass rate 1.000" not in shown
