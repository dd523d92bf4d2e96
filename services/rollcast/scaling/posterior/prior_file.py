"""A prior as a JSON file: `{"prior": {field of Prior: value, ..}}`; fields that are left out keep
their default.

`rollcast fit --prior FILE` reads it. Other keys of the file describe its origin and are ignored.
"""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, Prior
from rollcast.scaling.posterior.stack import parse_stack

PROBABILITIES = frozenset(
    {"transient_weight", "jump_weight", "tail_weight", "tail_falls", "turn_up"}
)
MAY_BE_ZERO = PROBABILITIES | {
    "drift",
    "drift_weight",
    "error_drift_weight",
    "turn_rate",
    "turn_scale",
}
"""All other fields are scales or shares that something is divided by."""
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
WEIGHTS = frozenset({"drift_weight", "error_drift_weight"})
"""Lists of which at least one number is above 0."""


def read_prior(path: Path) -> Prior:
    """The prior in the file.

    Raises ValueError, one sentence: no such file, no JSON, an unknown field, a bad value.
    """
    # Larger files are refused unread.
    max_prior_file_bytes = 1 << 20
    try:
        with path.open("rb") as file:
            text = file.read(max_prior_file_bytes + 1)
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read ({error.strerror}); give a file that holds a prior."
        ) from None
    if len(text) > max_prior_file_bytes:
        raise ValueError(
            f"{path}: is larger than a megabyte, so it is no prior; give a file that holds one."
        )
    try:
        prior_fields = json.loads(text)["prior"]
        items = dict(prior_fields).items()
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError(
            f'{path}: is no prior; give a JSON file {{"prior": {{..}}}} of fields of Prior.'
        ) from None
    defaults = {field.name: getattr(DEFAULT_PRIOR, field.name) for field in fields(Prior)}
    values: dict[str, Any] = {}
    for name, value in items:
        if name not in defaults:
            raise ValueError(
                f"{path}: prior.{name[:80]} is no field of a prior; those are "
                f"{', '.join(sorted(defaults))}."
            )
        if name == "stack":
            values[name] = None if value is None else parse_stack(f"{path}: prior.stack", value)
            continue
        values[name] = _check_value(f"{path}: prior.{name}", name, value, defaults[name])
    return replace(DEFAULT_PRIOR, **values)


def _check_value(where: str, name: str, value: Any, default: Any) -> Any:
    """The value of one field. Raises ValueError, which begins with `where`."""
    if name == "midpoint_reference" and value is None:
        return None
    if not isinstance(default, tuple):
        return _number(where, name, value)
    if name in ENDS:
        # Longest list of candidates for the end of a first phase; the default has 12.
        max_phase_ends = 100
        count = f"1 to {max_phase_ends} numbers"
        is_long_enough = isinstance(value, list) and 1 <= len(value) <= max_phase_ends
    else:
        count = f"{len(default)} numbers"
        is_long_enough = isinstance(value, list) and len(value) == len(default)
    if not is_long_enough:
        raise ValueError(f"{where} {repr(value)[:200]}: give a list of {count}.")
    numbers = []
    for index, item in enumerate(value):
        is_centre = name in CENTRES and index == 0
        numbers.append(_number(where, "" if is_centre else name, item))
    if name in WEIGHTS and not any(numbers):
        raise ValueError(f"{where} {value!r}: give one weight above 0 at least.")
    return tuple(sorted(numbers)) if name in ENDS else tuple(numbers)


def _number(where: str, name: str, value: Any) -> float:
    """The value as a number.

    A centre (no name) may be any; others are not negative, nor 0 unless `MAY_BE_ZERO`.
    """
    if not name:
        kind = "a number"
    elif name in PROBABILITIES:
        kind = "a probability"
    elif name in MAY_BE_ZERO:
        kind = "a number of 0 or more"
    else:
        kind = "a number above 0"
    # 1e300: largest absolute value of a number in a prior file; nan and inf are refused with it.
    is_number = (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    )
    is_low = is_number and name and (value < 0 or (value == 0 and name not in MAY_BE_ZERO))
    is_high = is_number and name in PROBABILITIES and value > 1
    if not is_number or is_low or is_high:
        raise ValueError(f"{where} {repr(value)[:200]}: give {kind}.")
    return float(value)
