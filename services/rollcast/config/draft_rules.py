"""The rules of speculative decoding."""

from collections.abc import Iterator

from rollcast.config.drafts import Drafts
from rollcast.config.model import Model
from rollcast.config.recipe import Recipe
from rollcast.config.sentences import Contradiction, with_prefix


def drafts_fit(model: Model, recipe: Recipe, drafts: Drafts | None) -> Iterator[Contradiction]:
    """Mistakes in the settings of drafts."""
    if drafts is None:
        return
    field = "generator.engine.speculative_config.method"
    if model.lora is not None:
        yield (
            field,
            "drafts for a model with adapters have not been validated; remove speculative_config, "
            "or train every weight without model.lora",
            "model.lora",
        )
    if recipe.router_replay:
        yield (
            field,
            "experts of drafted tokens have not been validated; remove speculative_config, or set "
            "recipe.router_replay to false",
            "recipe.router_replay",
        )
    yield from with_prefix("generator.engine.speculative_config", _drafts_are_one(drafts))


def _drafts_are_one(drafts: Drafts) -> Iterator[Contradiction]:
    if (drafts.model is None) != (drafts.method == "ngram"):
        yield (
            "model",
            "the method draft_model needs a model, and ngram uses no model; set both accordingly",
            "method",
        )
    lookup_min = drafts.prompt_lookup_min
    lookup_max = drafts.prompt_lookup_max
    if drafts.method == "draft_model" and (lookup_min is not None or lookup_max is not None):
        yield (
            "prompt_lookup_max" if lookup_min is None else "prompt_lookup_min",
            "a model that drafts looks nothing up; remove it",
            "method",
        )
    elif lookup_min is not None and lookup_max is not None and lookup_min > lookup_max:
        yield (
            "prompt_lookup_min",
            f"it is above prompt_lookup_max {lookup_max}; lower it or raise that",
            "prompt_lookup_max",
        )
