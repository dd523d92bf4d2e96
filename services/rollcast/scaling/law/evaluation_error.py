"""How well an evaluation can measure: the error of a pass rate from N held-out prompts with k samples each.

Prompts differ. With p_i the pass rate of prompt i and P their mean, a sample's variance P (1 - P) is what lies between
prompts, s P (1 - P), and what lies within them, (1 - s) P (1 - P):

    on these prompts          SE^2 = (1 - s) P (1 - P) / (N k)
    on others of their kind   SE^2 = s P (1 - P) / N + (1 - s) P (1 - P) / (N k)

The first is what the error bars of a curve show: its prompts are the same at every point. The second is what two data
sets, or a promise to a user, are compared by.
"""

from __future__ import annotations

from typing import NamedTuple

Z90 = 1.6448536269514722
"""Half of a normal distribution's 90 % interval, in standard deviations."""
USUAL_SPREAD = 0.5
"""s where nobody measured it: half of the variance lies between prompts."""


class EvaluationError(NamedTuple):
    """Half widths of 90 % intervals of a pass rate."""

    same_prompts: float
    other_prompts: float


def evaluation_error(num_prompts: int, samples: int, pass_rate: float, spread: float = USUAL_SPREAD) -> EvaluationError:
    """num_prompts: N. samples: k. pass_rate: P. spread: s, 0 = all prompts are equally hard, 1 = each is solved always
    or never.
    """
    variance = pass_rate * (1 - pass_rate)
    within = (1 - spread) * variance / (num_prompts * samples)
    between = spread * variance / num_prompts
    return EvaluationError(Z90 * within**0.5, Z90 * (between + within) ** 0.5)
