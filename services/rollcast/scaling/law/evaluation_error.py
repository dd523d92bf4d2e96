"""How well an evaluation can measure: the error of a pass rate from N held-out prompts with k
samples each.

Prompts differ. With p_i the pass rate of prompt i and P their mean, a sample's variance P (1 - P)
has a part between prompts, s P (1 - P), and a part within them, (1 - s) P (1 - P):

    on these prompts          SE^2 = (1 - s) P (1 - P) / (N k)
    on others of their kind   SE^2 = s P (1 - P) / N + (1 - s) P (1 - P) / (N k)

The first is the error of a curve's points, whose prompts are the same each time. The second is for
comparing two data sets, or for a promise to a user.
"""

from typing import NamedTuple

from rollcast.scaling.law.settings import DEFAULT_BETWEEN_PROMPT_SHARE, HALF_WIDTH_90_STD


class EvaluationError(NamedTuple):
    """Half widths of 90 % intervals of a pass rate."""

    same_prompts: float
    other_prompts: float


def evaluation_error(
    num_prompts: int, samples: int, pass_rate: float, spread: float = DEFAULT_BETWEEN_PROMPT_SHARE
) -> EvaluationError:
    """num_prompts: N. samples: k. pass_rate: P. spread: s, 0 = all prompts are equally hard, 1 =
    each is solved always or never.
    """
    variance = pass_rate * (1 - pass_rate)
    within = (1 - spread) * variance / (num_prompts * samples)
    between = spread * variance / num_prompts
    return EvaluationError(
        HALF_WIDTH_90_STD * within**0.5, HALF_WIDTH_90_STD * (between + within) ** 0.5
    )
