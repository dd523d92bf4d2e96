"""What is made from code is what the code makes; links lead somewhere; sentences of the program are
the program's.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from documents.__main__ import COMPILATION, EPISODES, FOLDER, generated
from documents.clients import with_clients_table
from documents.compilation import compilation_table
from documents.links import dead_links
from documents.performance import PAGE as PERFORMANCE
from documents.performance import with_performance_tables
from lab.plainness.parsed import parsed
from tests.documents.documented import LOG, PAGES, ROOT

GENERATED = generated()
TESTED = {"mistakes.md", "recipes.md", "dashboards.md"}
"""Reference pages that other tests compare with the program: tests/cli, tests/monitoring."""
TROUBLES = ROOT / "docs" / "troubleshooting.md"


@pytest.mark.parametrize("name", GENERATED)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text() == GENERATED[name], (
        "run `python -m documents`, or `make docs`"
    )


def test_the_table_of_clients_is_what_was_seen_of_the_pinned_ones() -> None:
    page = EPISODES.read_text()
    assert page == with_clients_table(page), "run `python -m documents`, or `make docs`"


def test_the_tables_of_speed_are_those_of_the_results() -> None:
    page = PERFORMANCE.read_text()
    assert page == with_performance_tables(page), "run `python -m documents`, or `make docs`"


def test_cards_of_compiled_steps_are_those_of_the_results() -> None:
    assert COMPILATION.read_text() == compilation_table(), "run `python -m documents`"


def test_every_reference_page_is_made_from_the_program_or_compared_with_it() -> None:
    assert {path.name for path in FOLDER.glob("*.md")} == GENERATED.keys() | TESTED


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_into_the_repository_leads_somewhere(page: Path) -> None:
    assert list(dead_links(page)) == []


def test_every_page_has_its_place_on_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    placed = re.findall(r"([\w/-]+\.md)$", text, re.MULTILINE)
    assert sorted(placed) == sorted(
        str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")
    )
    assert yaml.safe_load(text)["docs_dir"] == "docs"


def words_of_the_program() -> str:
    """Every text in services/, one a line; what is filled in is a gap."""
    said = []
    for path in (ROOT / "services").rglob("*.py"):
        if "_pb2" in path.name:
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    part.value if isinstance(part, ast.Constant) else "\0" for part in node.values
                ]
                said.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                said.append(node.value)
    said += [path.read_text() for path in (ROOT / "services/rollcast/forecaster/page").glob("*.js")]
    said += [path.read_text() for path in (ROOT / "helm/rollcast/files").glob("*.sh")]
    return "\n".join(said)


def test_sentences_of_the_troubleshooting_are_those_that_the_program_says() -> None:
    known = words_of_the_program()
    told = re.findall(r"^\| `([^`]+)` \|", TROUBLES.read_text(), re.MULTILINE)
    assert len(told) > 20
    unknown = [
        piece
        for text in told
        for piece in text.split("...")
        if piece.strip() and piece.strip() not in known
    ]
    assert unknown == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in LOG], ids=lambda page: page.name
)
def test_no_page_names_a_path_of_one_machine(page: Path) -> None:
    assert not re.findall(r"(?<![\w.])/(?:root|home/(?!me/)\w+|work|opt)/", page.read_text())
