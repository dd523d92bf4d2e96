"""The numbers learned from curves of other groups: how to combine the law with simple methods.

The law alone is not the best forecast of every run. There are also seven simple methods
(`outlook/simple.py`). Their weighted mean m is the centre of a second distribution, of a pass rate
Y at a later compute C:

    ln s            = scale[0] + scale[1] ln W + scale[2] ln D
    ln(up / down)/2 = tanh(side[0] + side[1] (2 L - 1))
    Y               = m + s e^(+-) T,   T of Student's t with `degrees` of freedom, s times up above
                    m, times down below

W is the width of the law's 90 % interval, D the standard deviation of the seven methods, L the pass
rate now. So runs near 0 have a longer upper side (late take-off), runs near 1 a longer lower one
(collapse), both with heavy tails.

`python -m benchmarks.world_prior` learns the numbers by maximum likelihood and writes them;
`learned.json` has those of all repositories.
"""

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

LEARNED = Path(__file__).with_name("learned.json")
"""The numbers that are used without `--prior`."""
NUM_METHODS = 7
"""Simple methods, in the order of `outlook/simple.py`."""


@dataclass(frozen=True)
class Stack:
    """The learned numbers, each named as in the file."""

    weights: tuple[float, ...]
    """(7,) of the simple methods; they add up to 1."""
    scale: tuple[float, ...]
    """(3,) coefficients of ln s."""
    side: tuple[float, ...]
    """(2,) coefficients of the ratio of the two sides."""
    degrees: float
    """Degrees of freedom of Student's t, above 1."""
    persistence: float
    """How far a run that is above its median at one compute is above it at a later one: the normal
    scores of the two correlate with (u_1 / u_2)^persistence, with u = C / C_now - 1."""
    late_take_off: float
    """Probability that a run whose level has not moved since its start gains 0.03 or more before it
    ends."""


SIZES = {"weights": NUM_METHODS, "scale": 3, "side": 2}


def parse_stack(where: str, stack_fields: Any) -> Stack:
    """The stack that a JSON object holds; every field must be there.

    Raises ValueError, which begins with `where`: no object, a field that is absent or unknown, a
    bad value.
    """
    names = [field.name for field in fields(Stack)]
    if not isinstance(stack_fields, dict) or sorted(stack_fields) != sorted(names):
        raise ValueError(f"{where}: give an object with exactly the fields {', '.join(names)}.")
    values: dict[str, Any] = {}
    for name in names:
        value = stack_fields[name]
        if name in SIZES:
            if not isinstance(value, list) or len(value) != SIZES[name]:
                raise ValueError(f"{where}.{name}: give a list of {SIZES[name]} numbers.")
            values[name] = tuple(_number(f"{where}.{name}", item) for item in value)
        else:
            values[name] = _number(f"{where}.{name}", value)
    if abs(sum(values["weights"]) - 1.0) > 1e-3:
        raise ValueError(
            f"{where}.weights: add up to {sum(values['weights']):g}; give weights that add up to 1."
        )
    if values["degrees"] <= 1.0:
        raise ValueError(f"{where}.degrees {values['degrees']:g}: give a number above 1.")
    if values["persistence"] < 0.0:
        raise ValueError(
            f"{where}.persistence {values['persistence']:g}: give a number of 0 or more."
        )
    if not 0.0 <= values["late_take_off"] <= 1.0:
        raise ValueError(f"{where}.late_take_off {values['late_take_off']:g}: give a probability.")
    return Stack(**values)


def _number(where: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Largest absolute value of a coefficient: beyond it e^x says nothing about a pass rate.
    max_coefficient = 50.0
    if not is_number or not math.isfinite(value) or abs(value) > max_coefficient:
        raise ValueError(
            f"{where} {repr(value)[:200]}: give a number from -{max_coefficient:g} to "
            f"{max_coefficient:g}."
        )
    return float(value)


def learned_stack() -> Stack:
    """The stack of `learned.json`."""
    return parse_stack(str(LEARNED), json.loads(LEARNED.read_text())["prior"]["stack"])
