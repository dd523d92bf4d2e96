"""How plainly the repository is written. `python -m lab.plainness` prints the table."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from lab.plainness.density import Module, modules, nested_conditionals, tuple_assignments
from lab.plainness.idiom import phrase_hits, prose_hits
from lab.plainness.literals import user_visible_hits

ROOT = Path(__file__).parents[1]
MAX_PROSE_HITS = 121
"""Odd phrases in docstrings, comments and documents. Some are right as they are, so the whole has a
budget."""


@cache
def services() -> list[Module]:
    """Parsed once for all tests."""
    return modules(ROOT)


def module(text: str) -> Module:
    return Module("example.py", text, ast.parse(text))


def test_prose_is_within_its_budget() -> None:
    found = prose_hits(ROOT)
    assert len(found) <= MAX_PROSE_HITS, "\n".join(map(str, found))


def test_what_a_user_reads_is_plain() -> None:
    found = user_visible_hits(ROOT)
    assert not found, "\n".join(map(str, found))


def test_values_are_assigned_one_by_one() -> None:
    found = [
        f"{item.name}:{node.lineno}" for item in services() for node in tuple_assignments(item)
    ]
    assert not found, "\n".join(found)


def test_conditional_expressions_are_not_nested() -> None:
    found = [
        f"{item.name}:{node.lineno}" for item in services() for node in nested_conditionals(item)
    ]
    assert not found, "\n".join(found)


def test_a_swap_is_no_assignment_of_several_values() -> None:
    assert tuple_assignments(module("a, b = b, a\nx[0], x[1] = x[1], x[0]\na, b = pair\n")) == []
    assert len(tuple_assignments(module("a, b = 1, 2\n"))) == 1


def test_a_conditional_expression_inside_another_is_found_at_its_ends_and_in_its_middle() -> None:
    text = (
        "x = 1 if a else 2 if b else 3\ny = (1 if a else 2) if b else 3\nz = f(1 if a else 2) if b "
        "else 3\n"
    )
    assert [node.lineno for node in nested_conditionals(module(text))] == [1, 2]


def test_a_phrase_is_found_as_a_whole_word_only() -> None:
    assert [
        hit.phrase for hit in phrase_hits("a.py", 1, "Nobody is told where it lies in wait")
    ] == [
        "tell, told",
        "where, for if or when",
        "stands, lies",
        "nobody, somebody",
    ]
    assert phrase_hits("a.py", 1, "A stellar result that is reported so long as it stands.") == []


def test_the_texts_of_commands_of_the_page_and_of_errors_are_read(tmp_path: Path) -> None:
    texts = {
        "cli/a.py": "NOTE = 'it is told'\n",
        "config/a.py": "def rule() -> str:\n    return f'{name} is held against'\n",
        "scaling/a.py": "raise UserError(f'{field}: mend it')\nlogging.info('it is told')\n",
        "forecaster/page/a.js": 'const a = "what came"; // somebody\n',
        "forecaster/page/a.html": "<p title='x'>what came</p>\n",
    }
    for name, text in texts.items():
        path = tmp_path / "services" / "rollcast" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = [hit.file.removeprefix("services/rollcast/") for hit in user_visible_hits(tmp_path)]
    assert sorted(found) == sorted(texts)
