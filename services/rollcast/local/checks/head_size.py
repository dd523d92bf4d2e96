"""Whether vLLM has an attention kernel for the model's head size here."""

from rollcast.local.checks.check import Start
from rollcast.memory.head_size import check_head_size

SETTINGS = ("model.path",)


def check(start: Start) -> None:
    check_head_size(start.config.model, on_gpus=bool(start.gpus))
