"""Whether the model predicts the next token."""

from rollcast.local.checks.check import Start
from rollcast.memory.text_model import check_causal

SETTINGS = ("model.path",)


def check(start: Start) -> None:
    check_causal(start.config.model)
