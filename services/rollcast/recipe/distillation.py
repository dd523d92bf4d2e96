"""On-policy distillation: the advantage of each sampled token from a teacher's log-probability of
it.

    A_t = A_reward - coefficient x (log pi_gen(y_t) - log pi_teacher(y_t))

y_t was sampled by the student. Its log-prob is the one recorded while sampling, log pi_gen, which
is also the denominator of the loss's ratio: no second forward pass. log pi_teacher is the teacher's
of the same token after the same prefix. The expectation of the bracket over pi_gen is KL(pi_gen ||
pi_teacher) of the token's distribution, the reverse KL, and on-policy the gradient of the objective
is minus its gradient, token by token: a token is judged for itself and not for what follows it
(discount 0). For a token of older weights the loss's ratio corrects its sampling, and the bracket
stays that of the weights which sampled it. A_reward is the verifier's advantage of the rollout, or
0. Terms are averaged as the recipe's aggregation says: divided by the sum of its weights, as
without a teacher.

Source: Thinking Machines, "On-Policy Distillation"
(https://thinkingmachines.ai/blog/on-policy-distillation), which uses coefficient 1, discount 0 and
an importance-sampling loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

Values = TypeVar("Values", "NDArray[np.float64]", "Tensor")

MIN_TEACHER_LOGPROB = -104.0
"""Nats. Smaller log-probs of a teacher count as this, the logarithm of the smallest float32: vLLM
writes -9999 for a token of probability 0, and one such token must not outweigh its whole batch."""


def distillation_advantages(
    advantages: Values, generator_logprobs: Values, teacher_logprobs: Values, coefficient: float
) -> Values:
    """Return A_t [T] from the verifier's advantages [T] and both log-probs [T].

    For NumPy and torch alike.
    """
    token_advantages: Values = advantages - coefficient * token_reverse_kl(
        generator_logprobs, teacher_logprobs
    )
    return token_advantages


def token_reverse_kl(generator_logprobs: Values, teacher_logprobs: Values) -> Values:
    """Return [T] log pi_gen - log pi_teacher, whose mean over sampled tokens estimates KL(pi_gen ||
    pi_teacher).
    """
    reverse_kl: Values = generator_logprobs - teacher_logprobs.clip(MIN_TEACHER_LOGPROB)
    return reverse_kl
