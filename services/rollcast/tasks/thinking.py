"""The think block of a completion, and who opened it: the model, or the prompt's own end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rollcast.config.errors import UserError

if TYPE_CHECKING:  # fork servers of verifiers need no settings
    from rollcast.config.recipe import LengthControl

THINK_START = "<think>"
THINK_END = "</think>"


def final_answer(completion: str) -> str:
    """What stands after the last `</think>`. Thinking that never ended holds no answer."""
    _, marker, answer = completion.rpartition(THINK_END)
    if marker:
        return answer
    return "" if THINK_START in completion else completion


def opens_thinking(prompt: str) -> bool:
    """Whether a completion of this text starts inside a think block."""
    return prompt.rstrip().endswith(THINK_START)


def closes_thinking(prompt: str) -> bool:
    """Whether the text ends in a think block that is over already: how some templates switch
    thinking off.
    """
    return prompt.rstrip().endswith(THINK_END)


def whole_completion(prompt_end: str, completion: str) -> str:
    """The completion as verifiers read it: with the `<think>` that the prompt ended in."""
    return THINK_START + completion if opens_thinking(prompt_end) else completion


def check_thinking(prompt: str, length_control: LengthControl) -> None:
    """Check a rendered prompt against the settings of the interruption of thinking.

    Raises UserError if forced interruption would look for another end of thinking than the
    prompt's, or if the prompt leaves nothing to interrupt.
    """
    if length_control.kind != "interruption":
        return
    setting = "recipe.length_control"
    if closes_thinking(prompt):
        raise UserError(
            f"{setting}.kind = interruption: the prompt ends in {THINK_END}, so there is no "
            "thinking to interrupt; set "
            "tasks.prompt_format.enable_thinking: true, or another length control"
        )
    if not (opens_thinking(prompt) or THINK_START in prompt):
        return
    if length_control.end_of_thinking != THINK_END:
        raise UserError(
            f"{setting}.end_of_thinking = {length_control.end_of_thinking!r}: the prompt asks for "
            f"thinking ending in {THINK_END}; set that"
        )
    if THINK_END not in length_control.phrase:
        raise UserError(
            f"{setting}.phrase = {length_control.phrase!r}: does not end the thinking that the "
            f"prompt asks for; add {THINK_END} to it"
        )
