"""Odd phrases that a user reads: in literals of the command line, the live page, config's sentences
and UserErrors.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from lab.plainness.idiom import Hit, docstrings, phrase_hits
from lab.plainness.parsed import parsed

SPEAKING = ("rollcast/cli", "rollcast/config")
"""Packages whose every literal of several words is taken for a sentence."""
PAGE = "rollcast/forecaster/page"
ERRORS = ("UserError", "PassingError")
_JS_COMMENT = re.compile(r"/\*.*?\*/|(?<![:\"'`])//[^\n]*", re.DOTALL)
_JS_TEXT = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`")
_HTML_TAG = re.compile(r"<!--.*?-->|<(?:script|style)\b.*?</(?:script|style)>", re.DOTALL)


def user_visible_hits(root: Path) -> list[Hit]:
    """Every odd phrase of a checkout that a user may read."""
    services = root / "services"
    found: list[Hit] = []
    for path in sorted(services.rglob("*.py")):
        if "_pb2" not in path.name:
            name = str(path.relative_to(root))
            tree = parsed(path)
            speaks = any(services / package in path.parents for package in SPEAKING)
            for literal in _literals(tree) if speaks else _error_messages(tree):
                found.extend(phrase_hits(name, literal.lineno, str(literal.value)))
    for path in sorted((services / PAGE).glob("*.*")):
        for line, text in _page_texts(path):
            found.extend(phrase_hits(str(path.relative_to(root)), line, text))
    return found


def _literals(tree: ast.Module) -> Iterator[ast.Constant]:
    """Literals of several words that are no docstring, and the docstrings of commands, which
    `--help` shows.
    """
    hidden = {id(docstring) for docstring in docstrings(tree)} - {
        id(text) for text in _help_texts(tree)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() as text) if (
                " " in text.strip() and id(node) not in hidden
            ):
                yield node


def _help_texts(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(body=[ast.Expr(value=text), *_]) if "typer." in ast.unparse(
                node.args
            ):
                yield text


def _error_messages(tree: ast.Module) -> Iterator[ast.Constant]:
    """The literals inside what a UserError is made of."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in ERRORS:
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part


def _page_texts(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(errors="ignore")
    if path.suffix == ".js":
        text = _JS_COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), text)
        for literal in _JS_TEXT.finditer(text):
            yield text.count("\n", 0, literal.start()) + 1, literal.group()
    elif path.suffix == ".html":
        text = _HTML_TAG.sub(lambda tag: "\n" * tag.group().count("\n"), text)
        yield from enumerate(text.splitlines(), 1)
