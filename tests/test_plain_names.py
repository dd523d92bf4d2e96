"""Names say what they hold. Each bound may only be lowered."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from lab.plainness import density, identifiers
from lab.plainness.density import Module

ROOT = Path(__file__).parents[1]


@cache
def services() -> list[Module]:
    return density.modules(ROOT)


@pytest.mark.parametrize(
    ("names", "max_share"),
    [
        (identifiers.variables, 0.005),
        (identifiers.parameters, 0.001),
        (identifiers.attributes, 0.0011),
    ],
)
def test_few_names_are_bare_words(names: Callable[[Module], list[str]], max_share: float) -> None:
    all_names = [(module.name, name) for module in services() for name in names(module)]
    bare_names = [f"{module}: {name}" for module, name in all_names if identifiers.is_bare(name)]
    assert len(bare_names) <= max_share * len(all_names), "\n".join(bare_names)


@pytest.mark.parametrize(
    ("measure", "most"),
    [
        (identifiers.participles, 2),
        (identifiers.prepositions, 1),
        (identifiers.pronoun_docstrings, 9),
        (identifiers.what_docstrings, 46),
        (density.numeric_constants, 396),
        (density.numeric_class_attributes, 231),
    ],
)
def test_what_a_reader_must_decipher_becomes_less(
    measure: Callable[[Module], list[str]], most: int
) -> None:
    found = [f"{module.name}: {name}" for module in services() for name in measure(module)]
    assert len(found) <= most, "\n".join(found)


def test_each_measure_finds_its_example() -> None:
    text = '''
class Store:
    def begun(self, part):
        """It has begun."""
        self._kept = part
    @property
    def ended(self): return self._kept
def rank_of(text):
    """What the rank is."""
    found, rank = text, 1
    return found
'''
    example = Module("example.py", text, ast.parse(text))
    assert identifiers.variables(example) == ["found", "rank"]
    assert identifiers.parameters(example) == ["text", "self", "part", "self"]
    assert identifiers.attributes(example) == ["kept"]
    assert identifiers.participles(example) == ["begun"]
    assert identifiers.prepositions(example) == ["rank_of"]
    assert (
        len(identifiers.pronoun_docstrings(example)),
        len(identifiers.what_docstrings(example)),
    ) == (1, 1)
