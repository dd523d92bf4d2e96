"""Router replay: the learner's routers send a token to the experts that the generator's sent it to.

A router decides by small differences: if two scores are nearly equal, rounding on one side flips
the choice, and the token's log-prob jumps. With the choice replayed the scores are still the
learner's own, and gradients flow through them; only the selection of experts is the generator's
(arXiv 2510.11370, "Rollout Routing Replay").

A router's own code runs, except that its last `topk` returns the recorded choices. Earlier ones
choose groups of experts (DeepSeek-V3, GLM-4 MoE). If the choice is by score and bias, the weights
are still of the scores alone.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rollcast.trainer.learner.batch import RouterShape
from rollcast.trainer.learner.unsupported import Unsupported

UNKNOWN_EXPERT = -1
"""Means that the router chooses itself: for padding, and for the last token, which is never an
input."""
REMEDY = "set recipe.router_replay to false"
TOPK = (torch.topk, Tensor.topk)


class RouterReplay:
    """The routers of a model on the meta device.

    `use` sets their choices from then on, recomputation included.
    """

    def __init__(self, causal_lm: nn.Module) -> None:
        """Raises Unsupported if the routers do not choose by `topk`."""
        routers = [
            module for module in causal_lm.modules() if type(module).__name__.endswith("Router")
        ]
        if not routers:
            raise Unsupported("has no router that recipe.router_replay knows", REMEDY)
        shapes = {_chosen_by(router) for router in routers}
        if len(shapes) != 1:
            raise Unsupported("has routers of several kinds", REMEDY)
        self._steps, experts, choices = shapes.pop()
        self.routing = RouterShape(len(routers), experts, choices)
        self._chosen: Tensor | None = None
        for layer, router in enumerate(routers):
            router.forward = partial(self._route, layer, router.forward)

    def use(self, chosen: Tensor | None) -> None:
        """`chosen` [B, S, layers, choices] int16, UNKNOWN_EXPERT if a router chooses itself; None =
        all do.
        """
        self._chosen = chosen

    def _route(self, layer: int, forward: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if self._chosen is None:
            return forward(*arguments, **named)
        # A router sees the tokens of all rows in one dimension.
        with _Choices(self._chosen[:, :, layer].flatten(0, 1).long(), step=self._steps):
            return forward(*arguments, **named)


class _Choices(TorchFunctionMode):
    """Records the arguments of each `topk`.

    That of number `step` returns `experts` [T, choices] with their scores.
    """

    def __init__(self, experts: Tensor | None = None, step: int = 0) -> None:
        super().__init__()
        self._experts = experts
        self._step = step
        self.topk_arguments: list[tuple[int, int]] = []
        self.values: Tensor | None = None
        """The result of the last `topk`, if nothing is replayed: a leaf, which shows what depends
        on it."""

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
        self.topk_arguments.append((arguments[0].shape[-1], result.indices.shape[-1]))
        if self._experts is None:
            self.values = result.values.detach().requires_grad_()
            return torch.return_types.topk((self.values.clone(), result.indices))
        if len(self.topk_arguments) != self._step:
            return result
        chosen = torch.where(self._experts == UNKNOWN_EXPERT, result.indices, self._experts)
        return torch.return_types.topk((arguments[0].gather(-1, chosen), chosen))


def _chosen_by(router: nn.Module) -> tuple[int, int, int]:
    """(number of `topk`, experts, choices) of a router, tried on one token. Raises Unsupported."""
    name = type(router).__name__
    weight = next(router.parameters())
    experts, hidden = weight.shape
    token = torch.zeros(1, hidden, dtype=weight.dtype, device=weight.device)
    # MiniMax's layer holds the bias of the choice and gives it to the router.
    num_biases = len(inspect.signature(router.forward).parameters) - 1
    biases = [torch.zeros(experts, device=weight.device)] * num_biases
    choices = _Choices()
    # With gradient, which shows what the weights depend on (`_depends_on`).
    with torch.enable_grad(), choices:
        router_outputs = router(token, *biases)
    if not choices.topk_arguments or choices.topk_arguments[-1][0] != experts:
        raise Unsupported(
            f"has routers ({name}) whose choice of experts recipe.router_replay does not find",
            REMEDY,
        )
    steps = len(choices.topk_arguments)
    # Of several steps the last one sees the scores of the chosen groups alone (DeepSeek-V2).
    if steps > 1 and _depends_on(choices.values, router_outputs):
        raise Unsupported(
            f"has routers ({name}) that weigh experts by the scores of its own groups alone", REMEDY
        )
    return steps, *choices.topk_arguments[-1]


def _depends_on(leaf: Tensor | None, outputs: Sequence[Tensor]) -> bool:
    """Whether one of these was computed from the leaf."""
    assert leaf is not None
    outputs_sum = sum(output.sum() for output in outputs if output.requires_grad)
    return (
        isinstance(outputs_sum, Tensor)
        and torch.autograd.grad(outputs_sum, leaf, allow_unused=True)[0] is not None
    )
