"""Which layers of a mixture of experts have routers, and whether their choices fit on the wire.

Imports neither torch nor vLLM, because the generator imports it before it sets the environment that both read.
"""

from typing import NamedTuple

from rollcast.config.errors import UserError
from rollcast.rollouts.codec import MAX_MESSAGE_BYTES

TOKEN_BYTES = 12
"""Upper limit of a token's bytes on the wire without its experts."""
MAX_EXPERTS_PER_LAYER = 256
"""A choice travels as one byte."""


class RoutingShape(NamedTuple):
    """The expert choices of one token."""

    layers: list[int]
    """Indices of the layers that have a router."""
    experts: int
    """Experts per layer."""
    choices: int
    """Experts that a router chooses per token and layer."""

    def check(self, rollouts: int, max_length: int) -> None:
        """Raise UserError if a group of `rollouts` rollouts, each `max_length` tokens long, exceeds a wire message."""
        if self.experts > MAX_EXPERTS_PER_LAYER:
            raise UserError(
                f"recipe.router_replay = true: a layer has {self.experts} experts, and a choice is one byte on the "
                f"wire, enough for {MAX_EXPERTS_PER_LAYER}; set it to false"
            )
        group = rollouts * max_length * (len(self.layers) * self.choices + TOKEN_BYTES)
        if group > MAX_MESSAGE_BYTES:
            raise UserError(
                f"recipe.router_replay = true: {rollouts} rollouts of model.max_length {max_length} take {group >> 20} "
                f"MiB with their experts, and a group may take {MAX_MESSAGE_BYTES >> 20}; shorten model.max_length, "
                "lower recipe.rollouts_per_prompt, or set it to false"
            )
