"""The functions for notebooks and trainers, with signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from types import FunctionType
from typing import Any

import rollcast
from rollcast import push

INTRODUCTION = """# Python

`import rollcast` loads nothing heavy. `rollcast.push` needs the standard library alone. The files
it reads are those of `rollcast fit`: [what can be read](../formats.md).

"""
LONGEST_LINE = 80
OFFERED: tuple[tuple[str, Any], ...] = (
    ("rollcast.forecast", rollcast.forecast),
    ("rollcast.CurveForecast", rollcast.CurveForecast),
    ("rollcast.load_step", rollcast.load_step),
    ("rollcast.StepBundle", rollcast.StepBundle),
    ("rollcast.InputError", rollcast.InputError),
    ("rollcast.push.Pusher", push.Pusher),
    ("rollcast.push.follow", push.follow),
)


def python_page() -> str:
    return INTRODUCTION + "".join(_section(name, thing) for name, thing in OFFERED).rstrip() + "\n"


def _section(name: str, thing: Any) -> str:
    said = f"## {name}\n\n" + _described(thing if isinstance(thing, FunctionType) else None, thing)
    if inspect.isclass(thing) and not issubclass(thing, Exception):
        made = vars(thing).get("__init__")
        if (
            isinstance(made, FunctionType)
            and inspect.getdoc(made)
            and not name.endswith("CurveForecast")
        ):
            said += f"### {name.rsplit('.', 1)[1]}(...)\n\n" + _described(made, made)
        for part, value in vars(thing).items():
            if not part.startswith("_"):
                function = value.fget if isinstance(value, property) else value
                if isinstance(function, FunctionType):
                    said += f"### {part}\n\n"
                    said += _described(None if isinstance(value, property) else function, function)
    return said


def _described(function: FunctionType | None, thing: Any) -> str:
    signature = ""
    if function is not None:
        signature = "".join(f"    {line}\n" for line in _signature(function)) + "\n"
    return f"{signature}{_prose(inspect.getdoc(thing) or '')}\n\n"


def _signature(function: FunctionType) -> list[str]:
    """On one line, or a parameter a line."""
    found = inspect.signature(function)
    own = [item for name, item in found.parameters.items() if name != "self"]
    whole = function.__name__ + _without_modules(str(found.replace(parameters=own)))
    if len(whole) <= LONGEST_LINE:
        return [whole]
    parts = [_without_modules(str(item)) for item in own]
    first_keyword = next(
        (n for n, item in enumerate(own) if item.kind is inspect.Parameter.KEYWORD_ONLY), None
    )
    if first_keyword is not None:
        parts.insert(first_keyword, "*")
    answer = _without_modules(inspect.formatannotation(found.return_annotation))
    return [f"{function.__name__}(", *(f"    {part}," for part in parts), f") -> {answer}"]


def _without_modules(text: str) -> str:
    """The types as a program that imports them writes them: `Mapping`, not
    `collections.abc.Mapping`.
    """
    return re.sub(
        r"\b(collections\.abc|typing|rollcast(\.\w+)*)\.(?=[A-Z])", "", text.replace("'", "")
    )


def _prose(text: str) -> str:
    """Google's sections unchanged, in a block: they are aligned by spaces."""
    for mark in ("Args:", "Raises:", "Returns:", "Attributes:"):
        if f"\n{mark}\n" in f"\n{text}":
            before, _, after = text.partition(mark)
            block = "".join(f"    {line}".rstrip() + "\n" for line in f"{mark}{after}".splitlines())
            return f"{before.strip()}\n\n{block}".strip("\n")
    return text
