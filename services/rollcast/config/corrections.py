"""Settings that correct a loss for tokens sampled by a policy other than the trained one. All are
off by default.

The ratio is rho_t = pi_train(y_t) / pi_gen(y_t): the trained weights of now and the trainer's
kernels above, the weights and kernels that sampled the token below. IcePop and TIS take both at the
weights that sampled; here the ratio contains staleness too, so that with a large
`recipe.schedule.max_staleness` the mask also leaves tokens out for it. The formulas are in
`rollcast.recipe.corrections`.
"""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import Settings


class RatioTruncation(Settings):
    """Truncated importance sampling (TIS) of the loss `reinforce`: its terms are multiplied by
    sg(min(rho, ratio_max)).
    """

    ratio_max: Annotated[float, Field(gt=0)] = 2.0
    """Upper bound C of the ratio. 2 is the usual value elsewhere; the paper does not use TIS."""
    over: Literal["token", "sequence"] = "token"
    """`token`: each token has its own ratio. `sequence`: all tokens of a training sequence have the
    product of their ratios, which is unbiased up to the truncation, and varies more the longer the
    sequence is. A single answer is one sequence; each sequence of an episode has a product of its
    own, as in GSPO."""


class RatioMask(Settings):
    """IcePop (arXiv 2510.18855): a token whose ratio is outside the range has no part in the loss.
    For every loss. Unlike IcePop's, the ratio has the trainer's weights of now, so tokens of old
    weights are left out for staleness too."""

    ratio_min: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Smallest ratio that is trained on; IcePop's value. 0 = no lower bound."""
    ratio_max: Annotated[float, Field(gt=1)] = 5.0
    """Largest ratio that is trained on; IcePop's value."""


class Corrections(Settings):
    """Corrections of the loss by the ratio."""

    truncation: RatioTruncation | None = None
    """Truncate the ratio and multiply `reinforce` by it. Refused for a loss that contains the ratio
    itself. None = off."""
    mask: RatioMask | None = None
    """Leave out tokens whose ratio is far from 1, for 8-bit generators or mixtures of experts
    without `recipe.router_replay`. None = off."""


NO_CORRECTIONS = Corrections()
"""All of them off."""
