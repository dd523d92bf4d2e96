"""Standard errors of an evaluation's pass rate: of completions, of prompts, and of a mixture."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def weighted_standard_error(
    shares: Mapping[str, float], errors: Mapping[str, float | None]
) -> float | None:
    """The standard error of the parts' weighted mean, the root of sum (share error)^2; None if a
    part's is unknown.
    """
    variance = 0.0
    for name, share in shares.items():
        error = errors[name]
        if error is None:
            return None
        variance += (share * error) ** 2
    return math.sqrt(variance)


def sampling_standard_error(rewards: Sequence[np.ndarray[Any, np.dtype[np.float64]]]) -> float:
    """Standard error of the mean of the prompts' mean rewards, the prompts held fixed.

    `rewards`: for each prompt its completions' rewards in [0, 1]. The variance within a prompt is
    estimated without bias from its completions. A single completion says nothing of it: the
    variance of a completion of any prompt takes its place, which is p (1 - p) if rewards are 0 and
    1, and never too small.
    """
    overall = float(np.mean([values.mean() for values in rewards]))
    of_any_prompt = overall * (1 - overall)
    if len(rewards) > 1:
        of_any_prompt = float(np.mean([((values - overall) ** 2).mean() for values in rewards]))
    variance = 0.0
    for values in rewards:
        count = len(values)
        within = float(values.var(ddof=1)) if count > 1 else of_any_prompt
        variance += within / count
    return float(np.sqrt(variance)) / len(rewards)


def clustered_standard_error(
    rewards: Sequence[np.ndarray[Any, np.dtype[np.float64]]],
) -> float | None:
    """Standard error of the mean of the prompts' mean rewards, the prompts drawn from many alike.

    s / sqrt(P), with s^2 = sum_p (m_p - m)^2 / (P - 1) over the mean rewards m_p of the P prompts
    and their mean m: completions of one prompt are a cluster (Miller, "Adding Error Bars to Evals",
    arXiv 2411.00640, section 2.2). `rewards` as above. None for a single prompt, which says nothing
    about others.
    """
    if len(rewards) < 2:
        return None
    means = np.array([values.mean() for values in rewards])
    return float(means.std(ddof=1)) / math.sqrt(len(means))
