"""Every command in the documents is carried out by a test, or marked in the document as needing
what no test has.

    rollcast COMMAND ...         in test_carried_out_commands.py; that it takes the options is seen
                                 here
    what starts services         by the test that ELSEWHERE names, in whose file the command's words
                                 stand
    python -m benchmarks.NAME    and lab.NAME, by whoever wrote its committed result: it takes
                                 minutes
    *Needs a cluster.*           by nobody here; the mark stands in the section, at the page's head,
                                 or behind `#`

What is running text may leave options out (`rollcast fit --json`): such a command and such options
must be there.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents.accounted import DOCUMENTED, DONE_HERE, is_accounted_for
from tests.documents.documented import LOG, PAGES, ROOT
from tests.documents.elsewhere import ELSEWHERE, Elsewhere, carried_out_by

PACKAGES = ("rollcast", "benchmarks", "lab", "testkit", "monitoring", "documents")


def test_commands_are_found() -> None:
    assert len(DOCUMENTED) > 200
    assert {item.words[0] for item in DOCUMENTED} >= {
        "rollcast",
        "make",
        "helm",
        "kubectl",
        "docker",
        "curl",
        "wandb",
    }
    assert len(DONE_HERE) > 40


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in LOG], ids=lambda page: page.name
)
def test_every_command_of_a_page_is_carried_out_or_marked(page: Path) -> None:
    assert [
        command.id
        for command in DOCUMENTED
        if command.page == page and not is_accounted_for(command)
    ] == []


@pytest.mark.parametrize("entry", ELSEWHERE, ids=lambda entry: entry.beginning)
def test_what_is_done_elsewhere_is_done_there(entry: Elsewhere) -> None:
    assert entry.missing() == []
    assert any(carried_out_by(command) is entry for command in DOCUMENTED), (
        "no page has it any more"
    )


def test_targets_of_make_and_modules_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in DOCUMENTED:
        if command.words[0] == "make":
            assert set(command.words[1:]) <= targets, command.id
        if command.words[:2] == ("python", "-m"):
            module = Path(*command.words[2].split("."))
            places = [ROOT / module, ROOT / "services" / module]
            if command.words[2].split(".")[0] in PACKAGES:
                found = [
                    place
                    for place in places
                    if place.is_dir() or place.with_suffix(".py").is_file()
                ]
                assert found, command.id
