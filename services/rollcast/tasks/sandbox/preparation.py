"""What a fork server imports before its first grading, so that no grading pays for it."""

import contextlib
import importlib
from pathlib import Path

from rollcast.tasks.sandbox.readable_files import readable_files, standard_library
from rollcast.tasks.verifiers import CODE, find_verifier, is_built_in

_USUAL_IMPORTS = (
    "abc", "array", "bisect", "calendar", "cmath", "collections", "contextlib", "copy",
    "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq",
    "io", "itertools", "json", "math", "numbers", "operator", "queue", "random", "re", "statistics",
    "string", "struct", "sys", "textwrap", "threading", "time", "typing", "unicodedata", "zlib",
    "numpy",
)  # fmt: skip
_WARM_UP = r"\boxed{\frac{1}{2} + \sqrt{x^2}}"
"""Graded once before the first fork: a parser that learns while it parses (math-verify's) has
learnt most then."""


def prepare(verifier: str) -> list[Path]:
    """Import what gradings of this verifier use; returns what their processes may read. Raises what
    its import does.

    A function of a user's own is imported and not called: it is not locked down yet.
    """
    if verifier == CODE:
        for module in _USUAL_IMPORTS:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        return standard_library()
    function = find_verifier(verifier).load()
    if is_built_in(verifier):
        with contextlib.suppress(Exception):
            function(_WARM_UP, _WARM_UP)
    return readable_files(
        getattr(function, "__module__", None) or __name__
    )  # a partial has no name
