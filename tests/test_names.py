"""One meaning for each class name of services/, and a glossary whose every entry points to
something that is there.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from pathlib import Path

import pytest

from lab.plainness.parsed import parsed

ROOT = Path(__file__).parents[1]
SERVICES = ROOT / "services" / "rollcast"
GLOSSARY = ROOT / "docs" / "glossary.md"
ENTRY = re.compile(
    r"^- \*\*(?P<term>[^*]+)\*\*: (?P<text>.+?)(?=^- |^#|\Z)", re.MULTILINE | re.DOTALL
)
CLASS_NAME = re.compile(r"`([A-Z]\w+)`")
LINK = re.compile(r"\]\(([^)]+)\)")


@functools.cache
def definitions() -> list[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The file and the definition of every class and function that somebody wrote.

    Parsed once for all tests.
    """
    return [
        (path.relative_to(SERVICES).as_posix(), node)
        for path in sorted(SERVICES.rglob("*.py"))
        if "_pb2" not in path.name
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def classes() -> dict[str, list[str]]:
    """Class name -> the files that define it."""
    found: dict[str, list[str]] = defaultdict(list)
    for file, node in definitions():
        if isinstance(node, ast.ClassDef):
            found[node.name].append(file)
    return found


def entries() -> dict[str, str]:
    """Term -> what the glossary says of it."""
    found = [(match["term"], match["text"]) for match in ENTRY.finditer(GLOSSARY.read_text())]
    assert len(dict(found)) == len(found), "a term is there twice"
    return dict(found)


def test_every_class_name_is_there_once() -> None:
    twice = {name: files for name, files in classes().items() if len(files) > 1}
    assert twice == {}


def test_no_two_class_names_differ_in_case_alone() -> None:
    names = sorted(classes())
    lower = [name.lower() for name in names]
    assert [name for name in names if lower.count(name.lower()) > 1] == []


@pytest.mark.parametrize("term", entries())
def test_a_term_of_the_glossary_points_to_what_is_there(term: str) -> None:
    text = entries()[term]
    links = [GLOSSARY.parent / link for link in LINK.findall(text)]
    assert links, f"{term}: no file is named"
    assert [str(link) for link in links if not link.exists()] == []
    defined = {
        node.name
        for link in links
        if link.is_file()
        for node in ast.walk(parsed(link.resolve()))
        if isinstance(node, ast.ClassDef)
    }
    assert [name for name in CLASS_NAME.findall(text) if name not in defined] == []


WORDS = """rollout group task prompt policy-version incarnation span staleness ledger intake
settle dispatch examiner grader judge verifier curve evaluation law forecast outlook horizon
asymptote"""


@pytest.mark.parametrize("word", WORDS.split())
def test_the_glossary_has_the_words_that_the_code_is_made_of(word: str) -> None:
    assert word in {term.split(" (")[0].lower().replace(" ", "-") for term in entries()}


VERBS = {
    "settle": ("trainer/control", "simulation"),
    "bury": ("rollouts", "trainer/control"),
    "retire": ("rollouts",),
    "fence": ("trainer/control", "rollouts", "weights", "generator", "simulation"),
    "hand_over": ("trainer/control", "generator", "weights"),
}
"""Where a verb has the one meaning that the glossary, or the queue's base, gives it."""


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_of_the_queue_is_nobody_elses(verb: str) -> None:
    form = re.compile(rf"_*{verb}(d|ed)?")
    found = {
        file
        for file, node in definitions()
        if not isinstance(node, ast.ClassDef) and form.fullmatch(node.name)
    }
    assert found
    assert sorted(path for path in found if not path.startswith(VERBS[verb])) == []


def test_the_tree_in_the_architecture_is_that_of_the_folders() -> None:
    tree = (
        (ROOT / "docs" / "architecture.md")
        .read_text()
        .split("## Where things are")[1]
        .split("##")[0]
    )
    named: list[Path] = []
    for line in tree.splitlines():
        if match := re.match(r"^( {4}| {6})(\S+/,? ?(?:\S+/)?)\s{2,}", line):
            base = SERVICES if len(match[1]) == 6 else ROOT
            named += [base / folder for folder in re.split(r",\s*", match[2].strip())]
    assert [str(folder) for folder in named if not folder.is_dir()] == []
    packages = {path.parent for path in SERVICES.glob("*/__init__.py")}
    assert packages <= {folder if folder.parent == SERVICES else folder.parent for folder in named}
