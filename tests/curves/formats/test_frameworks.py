"""Files as the frameworks themselves wrote them (`testkit/formats/generate.py`) tell the curve that
went into them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from testkit.formats.curve import HELD_OUT
from testkit.formats.history import read_history
from tests.curves.formats.framework_files import FILES, WRITTEN, assert_tells_the_curve, at


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_framework_wrote_is_read_without_a_flag(name: str, tmp_path: Path) -> None:
    assert_tells_the_curve(at(FILES, name, tmp_path), name)


def test_the_state_that_a_real_grpo_training_of_trl_left_is_read() -> None:
    """tests/push/test_trl.py is the training; its log holds the forecast that came back, too."""
    history = read_history(str(FILES / "trl_trainer_state.json"), Columns(), None)
    log = json.loads((FILES / "trl_trainer_state.json").read_text())["log_history"]
    assert history.origin.pass_rate == "eval_reward"
    assert [(item.step, item.pass_rate) for item in history.evaluations] == [
        (entry["step"], entry["eval_reward"]) for entry in log if "eval_reward" in entry
    ]


@pytest.mark.parametrize(
    "name", ["tensorboard/events.out.tfevents.1700000000.host.1.0", "run.wandb"]
)
def test_a_file_torn_at_any_byte_tells_its_beginning_or_is_refused(
    name: str, tmp_path: Path
) -> None:
    """As a kill leaves it, and as one that is still written looks."""
    content, torn = (FILES / name).read_bytes(), tmp_path / Path(name).name
    held_out = Columns(pass_rate=WRITTEN[name.partition("/")[0]][2])
    longest = 0
    for length in range(0, len(content), 37):
        torn.write_bytes(content[:length])
        try:
            history = read_history(str(torn), held_out, None)
        except UserError:
            continue
        read = [item.pass_rate for item in history.evaluations]
        assert read == pytest.approx(list(HELD_OUT[: len(read)]), abs=1e-6)
        longest = max(longest, len(read))
    assert longest >= len(HELD_OUT) - 1


def test_a_folder_that_holds_none_of_them_says_what_it_wants(tmp_path: Path) -> None:
    shutil.copy(FILES / "verl.log", tmp_path / "some.txt")
    with pytest.raises(
        UserError,
        match=r"holds no evaluations\.jsonl; give the folder of one run, of Rollcast, Tensor",
    ):
        read_history(str(tmp_path), Columns(), None)
