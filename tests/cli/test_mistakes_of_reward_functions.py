"""docs/reference/mistakes.md: what a reward function does wrong, in a sandbox of its own for each
mistake.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.tasks.sandbox import protections
from tests.cli.made_mistakes import check_is_told
from tests.cli.mistakes import MISTAKES, OF_REWARD_FUNCTIONS, told_by_the_page

VERIFIERS = "Verifiers"
TOLD = told_by_the_page()
IN_THE_SANDBOX = ("It opens a file in the sandbox", "It starts a thread in the sandbox")


@pytest.mark.parametrize("title", OF_REWARD_FUNCTIONS)
def test_a_mistake_is_told_as_the_page_says(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if title in IN_THE_SANDBOX and protections.missing():
        pytest.skip(f"this machine lacks {' and '.join(protections.missing())}")
    check_is_told(TOLD[VERIFIERS, title], MISTAKES[VERIFIERS][title], tmp_path, monkeypatch)
