"""Whether a resumed run has the prompts that it began with: its checkpoints keep their digest."""

import hashlib

from rollcast.config.errors import UserError
from rollcast.tasks.prompts import PromptSplit


def prompts_digest(split: PromptSplit) -> str:
    """SHA-256 of the training prompts in their order, and of the held-out ones in any."""
    ids = [
        *(prompt.id for prompt in split.train),
        "",
        *sorted(prompt.id for prompt in split.held_out),
    ]
    return hashlib.sha256("\0".join(ids).encode()).hexdigest()


def check_same_prompts(split: PromptSplit, digest: str) -> None:
    """`digest`: that a checkpoint holds; empty without one. Raises UserError for other prompts."""
    if digest and digest != prompts_digest(split):
        raise UserError(
            "tasks.dataset: its training and held-out prompts are not those that the run began "
            "with, in which its "
            "checkpoint has a position; restore the data, or choose another name for `run`"
        )
