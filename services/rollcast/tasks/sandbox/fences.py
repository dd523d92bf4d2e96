"""The fenced blocks of a Markdown text that may be Python, read as CommonMark does, and a little
further.

A fence is of backticks or tildes, and may be indented, begin a list item or be quoted: its block
loses what that adds. A fence inside a string of the program (a docstring with an example) does not
end the block.
"""

import ast
import itertools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(
    r"(?P<before>(?:[ \t]*(?:[-*+]|\d{1,9}[.)])(?=[ \t]))*[ "
    r"\t]*)(?P<run>`{3,}|~{3,})(?P<info>[^`]*)"
)
_QUOTE = re.compile(r" {0,3}>[ \t]?")
_LANGUAGE = re.compile(r"[\w+#-]*")
_PYTHON = ("", "python", "python3", "py", "py3")


@dataclass(frozen=True, slots=True)
class Block:
    source: str
    tree: ast.Module | None
    """None = it is not Python."""
    named: bool
    """Whether its fence names Python as the language."""


@dataclass(frozen=True, slots=True)
class _Fence:
    line: int
    is_quoted: bool
    columns: int
    run: str
    info: str
    can_close: bool

    def closes(self, opening: "_Fence") -> bool:
        return (
            self.can_close
            and self.is_quoted == opening.is_quoted
            and self.run.startswith(opening.run)
        )

    @property
    def language(self) -> str:
        language_match = _LANGUAGE.match(self.info.lower().lstrip("{."))
        return language_match[0] if language_match else ""


class Fences:
    """One text's fences, and the rest that is to be parsed."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._fences = [
            fence for number, line in enumerate(self._lines) if (fence := _read_line(number, line))
        ]
        self._last_closing = {
            fence.run[0]: number for number, fence in enumerate(self._fences) if fence.can_close
        }
        # Text of one answer that is parsed, counted for each try; a block beyond it is taken as
        # text that is not Python
        self._left_to_parse = 1 << 18

    def blocks(self) -> Iterator[Block]:
        """Blocks of Python or of no named language, in order. One that is never closed (the answer
        was cut) does not count."""
        opening_index = 0
        while opening_index < len(self._fences):
            opening = self._fences[opening_index]
            if self._last_closing.get(opening.run[0], -1) <= opening_index:
                opening_index += 1
                continue
            closing = next(self._closing(opening_index), None)
            if closing is None:
                return
            if opening.language in _PYTHON:
                block, closing = self._python_block(opening_index, closing)
                if block.tree is None and (
                    inner := self._last_python_opening(opening_index, closing)
                ):
                    opening_index = inner  # this block was never closed
                    continue
                yield block
            opening_index = closing + 1

    def _closing(self, opening_index: int) -> Iterator[int]:
        opening = self._fences[opening_index]
        return (
            number
            for number in range(opening_index + 1, len(self._fences))
            if self._fences[number].closes(opening)
        )

    def _python_block(self, opening_index: int, closing: int) -> tuple[Block, int]:
        """The block that fence `opening_index` opens, and the fence that ends it."""
        named = bool(self._fences[opening_index].language)
        source = self._block_source(opening_index, closing)
        if len(source) > self._left_to_parse:
            return Block(source, None, named), closing
        tree = self._parse(source)
        if tree is None and (dedented := textwrap.dedent(source)) != source:
            tree = self._parse(dedented)
            source = source if tree is None else dedented
        if tree is None and ('"""' in source or "'''" in source):
            # Fences that are tried as the end of one block; if none makes it Python, the first one
            # ends it
            for further in itertools.islice(self._closing(opening_index), 1, 16):
                longer = self._block_source(opening_index, further)
                if (tree := self._parse(longer)) is not None:
                    return Block(longer, tree, named), further
        return Block(source, tree, named), closing

    def _last_python_opening(self, opening_index: int, closing: int) -> int | None:
        inside = range(closing - 1, opening_index, -1)
        return next(
            (number for number in inside if self._fences[number].language in _PYTHON[1:]), None
        )

    def _block_source(self, opening_index: int, closing: int) -> str:
        opening = self._fences[opening_index]
        lines = self._lines[opening.line + 1 : self._fences[closing].line]
        if opening.is_quoted:
            lines = [_QUOTE.sub("", line, count=1) for line in lines]
        return "".join(f"{_outdent(line, opening.columns)}\n" for line in lines)

    def _parse(self, source: str) -> ast.Module | None:
        self._left_to_parse -= len(source)
        if self._left_to_parse < 0:
            return None
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _read_line(number: int, line: str) -> _Fence | None:
    quote = _QUOTE.match(line)
    fence_match = _FENCE.fullmatch(line[quote.end() if quote else 0 :].rstrip())
    if fence_match is None:
        return None
    prefix = fence_match["before"]
    info = fence_match["info"].strip()
    can_close = not info and not prefix.strip()
    return _Fence(
        number, quote is not None, len(prefix.expandtabs(4)), fence_match["run"], info, can_close
    )


def _outdent(line: str, columns: int) -> str:
    """Without the columns of its fence, or as many of them as the line has."""
    if not columns:
        return line
    if line.startswith("\t"):
        line = line.expandtabs(4)
    return line[min(columns, len(line) - len(line.lstrip(" "))) :]
