"""Router replay: the learner's routers send a token to the experts that the generator's sent it to.

A router decides by small differences: if two scores are nearly equal, rounding on one side flips the choice, and the
token's log-prob jumps. With the choice replayed the scores are still the learner's own, and gradients flow through
them; only the selection of experts is the generator's (arXiv 2510.11370, "Rollout Routing Replay").

A router's own code runs, except that its `topk` returns the recorded choices.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rollcast.trainer.learner.architecture import Unsupported
from rollcast.trainer.learner.batch import Routing

UNKNOWN_EXPERT = -1
"""Means that the router chooses itself: for padding, and for the last token, which is never an input."""
TOPK = (torch.topk, Tensor.topk)


class RouterReplay:
    """The routers of a model on the meta device. `use` sets their choices from then on, recomputation included."""

    def __init__(self, causal_lm: nn.Module) -> None:
        """Raises Unsupported if the routers do not choose by a single `topk`."""
        routers = [module for module in causal_lm.modules() if type(module).__name__.endswith("Router")]
        if not routers:
            raise Unsupported("has no router that recipe.router_replay knows", "set recipe.router_replay to false")
        shapes = {_chosen_by(router) for router in routers}
        if len(shapes) != 1:
            raise Unsupported("has routers of several kinds", "set recipe.router_replay to false")
        experts, choices = shapes.pop()
        self.routing = Routing(len(routers), experts, choices)
        self._chosen: Tensor | None = None
        for layer, router in enumerate(routers):
            router.forward = partial(self._route, layer, router.forward)

    def use(self, chosen: Tensor | None) -> None:
        """`chosen` [B, S, layers, choices] int16, UNKNOWN_EXPERT if a router chooses itself; None = all do."""
        self._chosen = chosen

    def _route(self, layer: int, forward: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if self._chosen is None:
            return forward(*arguments, **named)
        with _Choices(self._chosen[:, :, layer].flatten(0, 1).long()):
            return forward(*arguments, **named)


class _Choices(TorchFunctionMode):
    """Records the arguments of `topk`, which returns `experts` [T, choices] with their scores if it has any."""

    def __init__(self, experts: Tensor | None = None) -> None:
        super().__init__()
        self._experts = experts
        self.asked: list[tuple[int, int]] = []

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        result = function(*arguments, **(named or {}))
        if function not in TOPK:
            return result
        self.asked.append((arguments[0].shape[-1], result.indices.shape[-1]))
        if self._experts is None:
            return result
        chosen = torch.where(self._experts == UNKNOWN_EXPERT, result.indices, self._experts)
        return torch.return_types.topk((arguments[0].gather(-1, chosen), chosen))


def _chosen_by(router: nn.Module) -> tuple[int, int]:
    """(experts, choices) of a router, tried on one token. Raises Unsupported unless it makes exactly one choice."""
    weight = next(router.parameters())
    choices = _Choices()
    with torch.no_grad(), choices:
        router(torch.zeros(1, weight.shape[-1], dtype=weight.dtype, device=weight.device))
    if len(choices.asked) != 1:
        raise Unsupported(
            f"has routers ({type(router).__name__}) that choose in {len(choices.asked)} steps, and "
            "recipe.router_replay knows those of one",
            "set recipe.router_replay to false",
        )
    return choices.asked[0]
