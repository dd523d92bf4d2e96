"""The program in a completion."""

from __future__ import annotations

import re

from rollcast.tasks.thinking import final_answer

MAX_SOURCE_CHARACTERS = 1 << 17
"""A longer program is wrong: no answer needs 128 Ki characters."""

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+#.-]*)", re.MULTILINE)
_PYTHON = ("", "python", "python3", "py")


def last_program(completion: str) -> str | None:
    """The last fenced block of Python, or of no named language, after the think block.

    None where there is none, where it is never closed (the answer was cut), or where it is too long.
    """
    answer = final_answer(completion)
    fences = list(_FENCE.finditer(answer))
    found = None
    while fences:
        opening = fences.pop(0)
        closing = next((fence for fence in fences if not fence[1]), None)
        if closing is None:
            break
        if opening[1].lower() in _PYTHON:
            found = answer[answer.index("\n", opening.end()) + 1 : closing.start()]
        fences = fences[fences.index(closing) + 1 :]
    return found if found is not None and len(found) <= MAX_SOURCE_CHARACTERS else None
