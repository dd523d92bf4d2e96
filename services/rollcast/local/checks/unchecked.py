"""Sentences about what the checks of `config check` left out."""

from rollcast.config.environments.settings import SessionEnvironment
from rollcast.local.checks.check import Reach, Start
from rollcast.local.model_name import find_model_files, is_on_the_hub


def not_checked(start: Start) -> list[str]:
    """What only a start can look at, or only the machine of the run."""
    aspects = (
        ["model, data, verifiers, certificates, disk and devices", "the run's folder"]
        if start.reach is Reach.SETTINGS
        else _left_to_the_start(start)
    )
    return aspects if start.plan is not None else [*aspects, "whether the model fits the memory"]


def _left_to_the_start(start: Start) -> list[str]:
    config = start.config
    model = config.model.path
    aspects = ["whether ports are free"]
    if not config.redis.is_embedded:
        aspects.append(f"Redis at {config.redis.place}")
    if is_on_the_hub(model):
        aspects.append(f"whether the hub has the model {model}")
    environments = config.tasks.environments
    if programs := [item.name for item in environments if isinstance(item, SessionEnvironment)]:
        aspects.append(f"the programs of {', '.join(programs)} (`rollcast try` plays two episodes)")
    if find_model_files(model) is None:
        aspects.append("what its tokenizer makes of the prompts")
    return aspects
