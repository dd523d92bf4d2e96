"""A check before the start refuses a run for its prompts' lengths exactly if the trainer would.

test_prompt_lengths_in_a_program.py has Transformers count them in a program.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.local import own_program
from rollcast.local.checks import prompt_lengths
from rollcast.local.checks.check import Start
from rollcast.local.checks.checklist import check_start
from rollcast.tasks import tokens
from rollcast.tasks.prompts import load
from rollcast.tasks.tokenizer_file import TokenizerFile
from tests.local.prompts_of_known_lengths import TEMPLATE, check_edge, check_refuses, run


def counted_here(
    command: list[str], *, input: str, **_: object
) -> subprocess.CompletedProcess[str]:
    """What the program says that imports Transformers, which this process has imported: seconds for
    each look.
    """
    assert command[1:] == ["-m", tokens.__name__]
    output = io.StringIO()
    errors = io.StringIO()
    code: object = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        patch.setattr(sys, "stdin", io.StringIO(input))
        try:
            tokens.main()
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(command, code, output.getvalue(), errors.getvalue())


@pytest.fixture
def _counted_here(monkeypatch: pytest.MonkeyPatch) -> None:
    instead = SimpleNamespace(run=counted_here, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(own_program, "subprocess", instead)


@pytest.mark.usefixtures("_counted_here")
@pytest.mark.parametrize(
    ("template", "prompt_format"),
    [(None, {}), (TEMPLATE, {}), (None, {"layout": "think"})],
    ids=["no template", "template", "think"],
)
def test_at_the_edge_both_agree(
    template: str | None, prompt_format: dict[str, Any], tmp_path: Path
) -> None:
    check_edge(tmp_path, template, **prompt_format)


@pytest.mark.usefixtures("_counted_here")
def test_what_the_template_refuses_is_told_if_it_had_to_be_asked(tmp_path: Path) -> None:
    said = check_refuses(run(tmp_path, 40, template=TEMPLATE, system="Be short."))
    assert said.startswith(
        "tasks.prompt_format: the chat template refuses the prompt (no system message)"
    )


def test_with_plenty_of_room_no_program_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        prompt_lengths, "_exact", lambda *_: pytest.fail("it was asked for the exact length")
    )
    assert check_refuses(run(tmp_path, 200, template=TEMPLATE)) == ""


def test_data_that_takes_too_long_to_look_at_is_a_caution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_lengths, "MAX_LOOK_SECONDS", 0.0)
    config = run(tmp_path, 3)
    split = load(config.tasks)
    split.held_out.clear()  # one prompt is looked at however little time there is
    tokenizer = TokenizerFile.read(tmp_path / "model", "model")
    assert tokenizer is not None
    (said,) = prompt_lengths.check_lengths(
        config.recipe, config.model, config.tasks.prompt_format, split, tokenizer
    )
    assert said.startswith(
        "recipe.max_prompt_tokens = 3: none of the 1 shortest of 7 training prompts fits"
    )


def test_prompts_that_no_setting_makes_fit_are_called_too_long(tmp_path: Path) -> None:
    config = run(tmp_path, 5)
    short = config.model_copy(update={"model": config.model.model_copy(update={"max_length": 9})})
    with pytest.raises(
        UserError, match=r"no more than model\.max_length = 9 fit with a completion: shorten"
    ):
        check_start(Start(short))
