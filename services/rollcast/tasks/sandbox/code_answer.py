"""The program in a completion: one of its fenced blocks, and the others that it needs.

A solution is often followed by a usage example, by assertions or by sample output, and sometimes
comes in parts. So the program is the last block that defines what the task calls, or that reads
input if the task runs a script; a block that it depends on goes before or after it as in the
answer, without what it prints or asserts itself.
"""

import itertools
import re
from collections import deque
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass

from rollcast.tasks.sandbox.definitions import Definitions
from rollcast.tasks.sandbox.fences import Block, Fences
from rollcast.tasks.thinking import final_answer

_READS_INPUT = re.compile(r"\binput[ \t]*\(|\bstdin\b")


@dataclass(frozen=True, slots=True)
class _CodeBlock:
    number: int
    block: Block
    definitions: Definitions | None
    """None = it cannot be compiled."""

    def defines(self, name: str) -> bool:
        if self.definitions is not None:
            return name in self.definitions.defined
        pattern = rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{re.escape(name)}\b"
        return re.search(pattern, self.block.source, re.MULTILINE) is not None

    def defines_itself(self, name: str) -> bool:
        return self.defines(name) and (
            self.definitions is None or name not in self.definitions.imported
        )

    def converses(self, helpers: "Iterable[_CodeBlock]" = ()) -> bool:
        """Whether it is a program that reads input and prints."""
        if self.definitions is None:
            return self.block.named and _READS_INPUT.search(self.block.source) is not None
        return self.definitions.converses(
            [helper.definitions for helper in helpers if helper.definitions is not None]
        )

    @property
    def needed(self) -> Set[str]:
        return frozenset() if self.definitions is None else self.definitions.needed

    @property
    def defined(self) -> Set[str]:
        return frozenset() if self.definitions is None else self.definitions.defined


def find_program(
    completion: str, names: Collection[str] = (), predefined_names: Collection[str] = ()
) -> list[str] | None:
    """Sources that make up the program, to be run one after the other in one module; None = the
    answer has no program. names: functions that the tests call. Empty = the program is run as a
    script. given: names that are there before it runs.
    """
    # Blocks of one answer; only the last ones are looked at
    blocks = deque(Fences(final_answer(completion)).blocks(), 64)
    parts = [_CodeBlock(number, block, _definitions(block)) for number, block in enumerate(blocks)]
    main = _defining(parts, names) if names else _script(parts, predefined_names)
    main = main or _last_program(parts)
    if not main:
        return None
    used = sorted(
        {*main, *_dependencies(parts, main, predefined_names)},
        key=lambda code_block: code_block.number,
    )
    sources = [
        used_block.block.source if used_block in main else _helper(used_block)
        for used_block in used
    ]
    # A longer program is wrong: no answer needs 128 Ki characters
    return sources if sum(map(len, sources)) <= (1 << 17) else None


def _definitions(block: Block) -> Definitions | None:
    if block.tree is None:
        return None
    try:
        return Definitions(block.source, block.tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _defining(parts: list[_CodeBlock], names: Iterable[str]) -> list[_CodeBlock]:
    """The last block that defines each name."""
    definers = (_definer(parts[::-1], name) for name in names)
    return [definer for definer in dict.fromkeys(definers) if definer is not None]


def _definer(parts: list[_CodeBlock], name: str) -> _CodeBlock | None:
    """The first one that defines the name, or that imports it if none does."""
    definers = [code_block for code_block in parts if code_block.defines(name)]
    return next(
        (definer for definer in definers if definer.defines_itself(name)),
        next(iter(definers), None),
    )


def _script(parts: list[_CodeBlock], predefined_names: Collection[str]) -> list[_CodeBlock]:
    """The last block that reads and prints: by itself, else with its dependencies; else
    that reads.
    """
    latest = parts[::-1]
    alone = (block for block in latest if block.converses())
    joined = (
        block
        # Only this many of the last blocks are tried together with their dependencies
        for block in latest[:8]
        if block.converses(_dependencies(parts, [block], predefined_names))
    )
    readers = (
        block
        for block in latest
        if block.definitions is not None and block.definitions.reads_input()
    )
    return [*itertools.islice(itertools.chain(alone, joined, readers), 1)]


def _last_program(parts: list[_CodeBlock]) -> list[_CodeBlock]:
    """The fallback if no block fits the task: first a block that is marked as Python and does
    something.
    """
    for named, active in itertools.product((True, False), (True, False)):
        for code_block in reversed(parts):
            does_something = (
                code_block.definitions is None or code_block.definitions.does_something()
            )
            if code_block.block.named is named and (does_something or not active):
                return [code_block]
    return []


def _dependencies(
    parts: list[_CodeBlock], main: list[_CodeBlock], predefined_names: Collection[str]
) -> list[_CodeBlock]:
    """Other blocks that define what these, or what they depend on in turn, read: the nearest
    before, else after.
    """
    dependencies: list[_CodeBlock] = []
    waiting = list(main)
    settled = {*predefined_names, *(name for main_block in main for name in main_block.defined)}
    while waiting:
        code_block = waiting.pop()
        around = [
            block
            for block in (*parts[: code_block.number][::-1], *parts[code_block.number + 1 :])
            if block.definitions
        ]
        for name in sorted(set(code_block.needed) - settled):
            if (definer := _definer(around, name)) is not None and name not in settled:
                dependencies.append(definer)
                waiting.append(definer)
                settled |= definer.defined
            settled.add(name)
    return dependencies


def _helper(code_block: _CodeBlock) -> str:
    return (
        code_block.block.source
        if code_block.definitions is None
        else code_block.definitions.without_demonstration()
    )
