"""Phrases that engineers of this field do not write, found in docstrings, comments, documents and
literals.

Some hits are right as they are. So prose has a budget for the whole repository; only what a user
reads has none.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lab.plainness.parsed import parsed

PHRASES = {
    "tell, told": r"tells?|told|telling",
    "what came, what is, as a noun": r"what (?:came|comes|was|is|has|had|it|they|he)",
    "where, for if or when": r"where (?:an?|the|that|this|there|it|they|one|none|no)",
    "held against": r"h[oe]lds? (?:(?:it|them|that) )?against",
    "stands, lies": r"(?:stands?|stood|lies|lie) "
    r"(?:in|on|at|under|beside|behind|before|ready|there|again|over)",
    "beside": r"beside",
    "mend": r"mend(?:s|ed|ing)?",
    "anew": r"anew",
    "but, for except": r"(?:all|any|anything|every|everything|none|nothing)(?: \w+){0,2} but",
    "is none, has none": r"(?:is|are|has|have|knows|tells|gives|names) none",
    "so many, without as": r"so (?:many|few|long|much)(?! (?:as|that)\b)",
    "nobody, somebody": r"(?:no|some|any|every)body",
    (
        "at last, for ever, at once"
    ): r"at last|at once|as a rule|as ever|as yet|for ever|in vain|by and by",
    "bears": r"bears?|bore",
}
"""Each phrase by its name. Matched as whole words, in either case."""

PATTERNS = {
    name: re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE) for name, phrase in PHRASES.items()
}
FRAGMENT = re.compile(r"\s*(?:About|As|At|Beyond|But|For|From|In|Of|So|The same|To) ")
"""How a docstring without a subject begins."""
FRAGMENT_NAME = "docstring without a subject"

SOURCES = ("services", "testkit", "benchmarks", "lab", "documents")
PAGES = ("docs", "lab", "helm", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
_CODE_BLOCK = re.compile(r"```.*?```", re.DOTALL)


class Hit(NamedTuple):
    """One odd phrase."""

    file: str
    line: int
    phrase: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.phrase}: {' '.join(self.text.split())}"


def prose_hits(root: Path) -> list[Hit]:
    """Every odd phrase in the docstrings, comments and pages of a checkout."""
    found: list[Hit] = []
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.py")):
            if "_pb2" not in path.name and path != Path(__file__):
                found.extend(_source_hits(path, str(path.relative_to(root))))
    for page in PAGES:
        named = root / page
        for path in [named] if named.is_file() else sorted(named.rglob("*.md")):
            found.extend(_page_hits(path, str(path.relative_to(root))))
    return found


def phrase_hits(file: str, line: int, text: str) -> list[Hit]:
    """The odd phrases of one text."""
    return [
        Hit(file, line, name, text)
        for name, pattern in PATTERNS.items()
        for _ in pattern.finditer(text)
    ]


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Docstrings of modules, classes and functions, and those under an attribute."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str()) as docstring):
                    yield docstring


def _source_hits(path: Path, name: str) -> Iterator[Hit]:
    source = path.read_text()
    for docstring in docstrings(parsed(path)):
        text = str(docstring.value)
        yield from phrase_hits(name, docstring.lineno, text)
        if FRAGMENT.match(text):
            yield Hit(name, docstring.lineno, FRAGMENT_NAME, text)
    # Tokens take long; no comment has a phrase that does not follow a hash.
    if not any(phrase_hits(name, 0, line.partition("#")[2]) for line in source.splitlines()):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from phrase_hits(name, token.start[0], token.string)


def _page_hits(path: Path, name: str) -> Iterator[Hit]:
    text = _CODE_BLOCK.sub(lambda block: "\n" * block.group().count("\n"), path.read_text())
    for number, line in enumerate(text.splitlines(), 1):
        yield from phrase_hits(name, number, line)
