"""A prior as a JSON file: `{"prior": {field of Prior: value, ..}}`; fields that are left out keep their default.

Programs that learn a prior write it, `rollcast fit --prior FILE` reads it. Whatever else the file holds beside `prior`
tells where it came from, and is left alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, Prior

LARGEST_NUMBER = 1e300
"""Any value is smaller; nan is not."""
LARGEST_FILE = 1 << 20
"""Bytes that are read."""
PROBABILITIES = frozenset({"transient_weight", "jump_weight", "tail_weight", "tail_falls", "turn_up"})
MAY_BE_ZERO = PROBABILITIES | {"drift", "drift_weight", "error_drift_weight", "turn_rate", "turn_scale"}
"""Everything else is a scale or a share that is divided by."""
CENTRES = frozenset(
    {
        "asymptote",
        "initial",
        "log_exponent",
        "log_midpoint",
        "log_noise",
        "log_error_scale",
        "log_drifting_error_scale",
        "first_phase",
    }
)
"""Pairs of a centre, which may be any number, and a scale."""
ENDS = frozenset({"transient", "start_transient"})
"""Lists of any length up to MAX_ENDS."""
MAX_ENDS = 100
WEIGHTS = frozenset({"drift_weight", "error_drift_weight"})
"""One of them at least is above 0."""


def write_prior(path: Path, prior: Prior, origin: dict[str, Any]) -> None:
    """`origin`: where it came from, kept beside it."""
    path.write_text(json.dumps({**origin, "prior": asdict(prior)}, indent=1) + "\n")


def read_prior(path: Path) -> Prior:
    """Raises ValueError: no such file, no JSON, a field that does not exist or cannot be; one sentence each."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); give a file that holds a prior.") from None
    if len(text) > LARGEST_FILE:
        raise ValueError(f"{path}: is larger than a megabyte, so it is no prior; give a file that holds one.")
    try:
        given = json.loads(text)["prior"]
        items = dict(given).items()
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError(f'{path}: is no prior; give a JSON file {{"prior": {{..}}}} of fields of Prior.') from None
    known = {field.name: getattr(DEFAULT_PRIOR, field.name) for field in fields(Prior)}
    values: dict[str, Any] = {}
    for name, value in items:
        if name not in known:
            raise ValueError(f"{path}: prior.{name[:80]} is no field of a prior; those are {', '.join(sorted(known))}.")
        values[name] = _checked(f"{path}: prior.{name}", name, value, known[name])
    return Prior(**values)


def _checked(where: str, name: str, value: Any, default: Any) -> Any:
    if name == "midpoint_reference" and value is None:
        return None
    if not isinstance(default, tuple):
        return _number(where, name, value)
    if (
        not isinstance(value, list)
        or not value
        or (name not in ENDS and len(value) != len(default))
        or len(value) > MAX_ENDS
    ):
        count = f"1 to {MAX_ENDS} numbers" if name in ENDS else f"{len(default)} numbers"
        raise ValueError(f"{where} {repr(value)[:200]}: give a list of {count}.")
    numbers = [_number(where, "" if name in CENTRES and place == 0 else name, item) for place, item in enumerate(value)]
    if name in WEIGHTS and not any(numbers):
        raise ValueError(f"{where} {value!r}: give one weight above 0 at least.")
    return tuple(sorted(numbers)) if name in ENDS else tuple(numbers)


def _number(where: str, name: str, value: Any) -> float:
    """Centres (no name) are any number; of the rest what is divided by is above 0, probabilities are at most 1."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST_NUMBER
    if (
        not is_number
        or (name and (value < 0 or (value == 0 and name not in MAY_BE_ZERO)))
        or (name in PROBABILITIES and value > 1)
    ):
        positive = "a number of 0 or more" if name in MAY_BE_ZERO else "a number above 0"
        kind = "a probability" if name in PROBABILITIES else positive if name else "a number"
        raise ValueError(f"{where} {repr(value)[:200]}: give {kind}.")
    return float(value)
