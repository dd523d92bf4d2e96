"""CONTRIBUTING.md names targets that are there, and the diffs of its examples fit the code.

test_contributing_examples.py applies each to a copy of the repository and runs its commands.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.contributing_examples import EXAMPLES, PAGE, ROOT


def test_every_make_target_that_is_named_is_there() -> None:
    named = set(
        re.findall(
            r"make ([a-z-]+)\b",
            "\n".join(re.findall(r"^    make .*|`[^`\n]*make [^`]*`", PAGE, re.M)),
        )
    )
    assert named >= {"near", "check", "test", "chart", "wire"}
    assert named <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_there_are_five_examples() -> None:
    assert list(EXAMPLES) == ["A loss", "A verifier", "A log reader", "A setting", "A metric"]


@pytest.mark.parametrize("title", EXAMPLES)
def test_the_diff_of_an_example_fits(title: str) -> None:
    checked = subprocess.run(
        ["git", "apply", "--check", "--recount", "-"],
        cwd=ROOT,
        input=EXAMPLES[title]["diff"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, (
        f"{checked.stderr}Refresh the diff of this example in CONTRIBUTING.md, or move your lines."
    )
