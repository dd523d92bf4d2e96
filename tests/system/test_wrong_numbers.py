"""`rollcast up` with a loss whose gradient overflows later on: one restart, then the end."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from testkit.forked_programs import ForkedPrograms
from testkit.system.audit import read_lines
from testkit.system.command import read_output, rollcast
from testkit.system.harness import wait_for
from tests.system.ten_lines import BATCH, minimal_settings

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(900)]

LOSS = """
from pathlib import Path


def loss(inputs):
    terms = inputs.advantages * inputs.logprobs
    if Path({flag!r}).exists():
        terms = 3e38 * (inputs.logprobs - inputs.logprobs.detach())
    return terms
"""


def test_the_trainer_goes_back_once_and_then_the_run_ends(
    tmp_path: Path, model_folder: Path, programs: ForkedPrograms
) -> None:
    flag = tmp_path / "overflow"
    (tmp_path / "mine.py").write_text(LOSS.format(flag=str(flag)))
    settings = minimal_settings(tmp_path, model_folder)
    settings["recipe"] = BATCH | {"loss": {"kind": "python", "function": "mine.py:loss"}}
    settings["local"] = {"generators": 1, "trainer_ranks": 2}
    settings["trainer"] = {"checkpoint_every_steps": 1}
    settings["budget"]["steps"] = 400
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    folder = tmp_path / "runs" / settings["run"]
    with rollcast(tmp_path, "up", "--config", "run.yaml", programs=programs) as up:
        wait_for(lambda: len(read_lines(folder / "steps.jsonl")) >= 3, 400, "three steps")
        flag.touch()
        code = up.wait(400)
    output = read_output(tmp_path)
    assert code == 2, output
    assert output.count("trainer ended with exit code 1; starting it again") == 1
    assert "not finite in 3 batches in a row" in output
    assert "A restart came no step further than" in output
    steps = [line["step"] for line in read_lines(folder / "steps.jsonl")]
    (resumed,) = (line for line in read_lines(folder / "tasks.jsonl") if line["what"] == "resumed")
    assert int(resumed["version"].partition(".")[2]) >= max(steps) - 1 > 0
