"""Whether model.max_length is within the model's context."""

from rollcast.local.checks.check import Start
from rollcast.memory.text_model import check_max_length

SETTINGS = ("model.path", "model.max_length")


def check(start: Start) -> None:
    check_max_length(start.config.model)
