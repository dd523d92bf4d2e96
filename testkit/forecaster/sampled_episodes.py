"""An evaluation's samples with an episode in which everything occurs
that a page can show of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rollcast.runfolder.samples import (
    SampledCompletion,
    SampledEpisode,
    SampledLeg,
    SampledTurn,
    SamplesRecord,
)

HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
"""Markup that a page must show as text only."""
PROMPT = (
    "<|im_start|>system\nYou may call tools.<|im_end|>\n<|im_start|>user\nA crate holds 12 rows of "
    "17 apples. A "
    "quarter of them is sold. How many are left?<|im_end|>\n<|im_start|>assistant\n"
)


def _sampled(
    kind: str, version: str, text: str, seed: int, *, is_trained: bool = True
) -> SampledLeg:
    """Tokens of one word each, most of them probable."""
    tokens = [word if index == 0 else f" {word}" for index, word in enumerate(text.split(" "))]
    chances = np.random.default_rng(seed).beta(4.0, 0.5, size=len(tokens))
    logprobs = [round(math.log(max(chance, 1e-3)), 3) if is_trained else 0.0 for chance in chances]
    return SampledLeg(kind, version, tokens, logprobs, is_trained)


def _given(version: str, text: str) -> SampledLeg:
    return SampledLeg("given", version, [text], [], is_trained=False)


def _answer(version: str, words: Sequence[str]) -> SampledLeg:
    return SampledLeg("answer", version, list(words), [-0.05] * len(words), is_trained=True)


def episode() -> SampledEpisode:
    """Four turns: a call, a malformed one, a text with markup and a cut, and a branch
    that answers.
    """
    call = (
        '<tool_call> {"name": "calculator", "arguments": {"expression": "12 * 17"}} '
        "</tool_call><|im_end|>"
    )
    broken = (
        '<tool_call> {"name": "calculater", "arguments": {"expression": "204 / 4" '
        "</tool_call><|im_end|>"
    )
    back = (
        "<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    thought = "<think> The crate holds 12 rows of 17 apples, so I multiply first."
    refusal = "This is no valid JSON: expected , or } at character 61."
    first_call = [
        _sampled("thinking", "3.41", thought, 1),
        _sampled("phrase", "3.41", "\nTime is up.</think>\n", 2, is_trained=False),
        _sampled("answer", "3.41", call, 3),
        _given("3.41", back.format("204")),
    ]
    malformed_call = [
        _sampled("answer", "3.41", "A quarter of 204 is sold,", 4),
        _sampled("answer", "3.42", f"so I divide: {broken}", 5),
        _given("3.42", back.format(refusal)),
    ]
    cut_text = [
        _answer("3.42", [HOSTILE, " and", " so", " on"]),
        SampledLeg("answer", "", [], [], is_trained=True, num_left_out=412),
        _answer("3.42", [" is", " what", " I", " found."]),
    ]
    branch = [_sampled("answer", "3.42", "204 - 51 = 153, so 153 apples are left.", 7)]
    branch_prompt = f"{PROMPT}204 apples in all, 51 of them sold.\n"
    turns = [
        SampledTurn(1, 0, first_call, tool_calls=1, environment_seconds=0.42, reward=0.1),
        SampledTurn(
            2, 0, malformed_call, tool_calls=1, malformed_calls=1, environment_seconds=0.01
        ),
        SampledTurn(5, 0, cut_text),
        SampledTurn(6, 1, branch, prompt=branch_prompt),
    ]
    return SampledEpisode(
        environment="calculator",
        end="answered",
        reason="",
        turns=turns,
        num_turns=6,
        environment_seconds=12.5,
        sampling_seconds=3.25,
        restarts=1,
    )


def samples(step: int) -> SamplesRecord:
    """An episode that was right, one whose environment failed, and an answer without an
    environment.
    """
    failed_episode = SampledEpisode(
        "shell", "failed", "tool run: no answer within 30 s", [], 0, 30.0, 0.0, 2
    )
    return SamplesRecord(
        incarnation=1,
        step=step,
        dataset="worlds",
        samples=[
            SampledCompletion(
                PROMPT, "as text", 1.0, "ok", 180, truncated=False, episode=episode()
            ),
            SampledCompletion(
                PROMPT, "", 0.0, "ungraded", 0, truncated=False, episode=failed_episode
            ),
            SampledCompletion("2 + 7 =", f"9, {HOSTILE}", 0.0, "wrong", 8, truncated=True),
        ],
        at=1_700_000_000.0 + step,
    )
