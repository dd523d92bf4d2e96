"""docs/reference/mistakes.md: every mistake of its tables is made, and told in the words that stand
beside it.

test_mistakes_of_reward_functions.py makes the rest of those that take a sandbox each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import command
from tests.cli.made_mistakes import check_is_told
from tests.cli.mistakes import (
    CAUTIONS,
    FIRST_MINUTES,
    MISTAKES,
    OF_REWARD_FUNCTIONS,
    Mistake,
    is_as_told,
    prepared,
    told_by_the_page,
)

TOLD = told_by_the_page()
CAUTION = "Cautions"
CASES = [
    (group, title)
    for group, titles in MISTAKES.items()
    for title in titles
    if title not in OF_REWARD_FUNCTIONS
]


def test_the_page_has_every_mistake_once_and_there_are_forty() -> None:
    titles = [
        (group, title)
        for group, titles in {**MISTAKES, CAUTION: CAUTIONS}.items()
        for title in titles
    ]
    assert sorted(one for one in TOLD if one[0] != FIRST_MINUTES) == sorted(titles)
    assert len(titles) >= 40


@pytest.mark.parametrize(
    ("group", "title"), CASES, ids=[f"{group}-{title}" for group, title in CASES]
)
def test_a_mistake_is_told_as_the_page_says(
    group: str, title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_is_told(TOLD[group, title], MISTAKES[group][title], tmp_path, monkeypatch)


def cautions() -> list[str]:
    """What a check that finds nothing wrong warns of."""
    checked = command.rollcast("config", "check", "run.yaml")
    assert checked.returncode == 0, checked.stderr
    return [
        line.removeprefix("caution: ")
        for line in checked.stdout.splitlines()
        if line.startswith("caution: ")
    ]


@pytest.mark.parametrize(("title", "mistake"), CAUTIONS.items(), ids=list(CAUTIONS))
def test_a_check_warns_of_it_as_the_page_says(
    title: str, mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path, mistake)
    (said,) = cautions()
    assert is_as_told(said, TOLD[CAUTION, title]), said


def test_a_sound_run_file_has_no_caution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path, Mistake())
    assert cautions() == []
