"""The reference policy of a KL penalty: frozen, in the model's dtype, sharded like the trained policy.

Nothing of it is saved or published: a resumed run reads it from its folder again.
"""

from typing import cast

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.recipe import KlPenalty, Recipe
from rollcast.config.services import Trainer
from rollcast.trainer.learner.model import Policy
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.reading import read_policy


class Reference:
    """Log-probabilities under the reference, computed in chunks like the policy's."""

    def __init__(self, policy: Policy, coefficient: float) -> None:
        self.policy = policy
        self.coefficient = coefficient
        """Coefficient of the KL penalty in the objective."""

    def logprobs(self, input_ids: Tensor, positions: Tensor, targets: Tensor) -> Tensor:
        """Return [T] log pi_ref of `targets`, without gradient; arguments as `Policy.forward`. Collective."""
        with torch.no_grad():
            logprobs, _ = self.policy(input_ids, positions, targets)
        for module in self.policy.modules():  # without a backward pass nothing else frees the gathered weights
            if isinstance(module, FSDPModule):
                module.reshard()
        return cast(Tensor, logprobs)


def read_reference(
    settings: KlPenalty, model: Model, recipe: Recipe, trainer: Trainer, ranks: Ranks, *, vocab_size: int
) -> Reference:
    """Read and shard the reference policy. Raises UserError if it cannot be read or has another vocabulary.

    `model`: the trained one, which is its own reference if the settings name no other.
    """
    path = settings.reference or model.path
    reference = model.model_copy(update={"path": path})
    try:
        policy = read_policy(reference, recipe, trainer, ranks, dtype=getattr(torch, model.dtype), frozen=True)
    except UserError as error:
        raise type(error)(str(error).replace("model.path", "recipe.kl.reference")) from error
    policy.eval()
    if policy.vocab_size != vocab_size:
        raise UserError(
            f"recipe.kl.reference = {path!r} has a vocabulary of {policy.vocab_size}, model.path one of {vocab_size}; "
            "give a model with the same tokenizer"
        )
    return Reference(policy, settings.coefficient)
