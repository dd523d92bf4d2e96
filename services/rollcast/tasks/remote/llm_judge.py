"""A language model that reads a completion and gives a score,
behind an OpenAI-compatible endpoint.
"""

import re
from collections.abc import Callable
from typing import Any

from rollcast.config.verifiers import JudgeVerifier
from rollcast.tasks.remote.asking import Asking, Outcome
from rollcast.tasks.thinking import final_answer
from rollcast.tasks.verifiers import Grade, make_grade

_PLACE = re.compile(r"\{([^{}\n]{1,100})\}")
_NUMBER = r"(?:\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})"
_RANGE = rf"(?:(?:from\s+)?{_NUMBER}\s*(?:[-\u2013\u2014]|to)\s*|(?:out\s+)?of\s+|/\s*|max\.?\s*)(?P<most>{_NUMBER})"  # noqa: E501
_BEGIN = r"\W{0,20}(?:(?:the|my|your|final|overall|total)\s{1,5}){0,3}score"
_SCORE = re.compile(
    rf"{_BEGIN}(?:\W{{1,5}}is\b)?\W{{0,40}}?(?:[(\[]\s*{_RANGE}\s*[)\]]\W{{0,20}}?)?(?P<score>-?{_NUMBER})"
    rf"(?:\W{{0,5}}?(?:/|\bout\s+of\b|\bof\b)\W{{0,5}}?(?P<of>{_NUMBER})|\s*(?P<percent>%|percent\b))?"
    r"(?:\s+(?:points?|stars?|marks?))?\W{0,20}",
    re.IGNORECASE,
)
_VERDICT = re.compile(
    rf"{_BEGIN}[\s*_]{{0,20}}(?:[(\[][^)\]]{{0,60}}[)\]][\s*_]{{0,20}})?(?:[:=\d]|[\u2013\u2014-]\s)",
    re.IGNORECASE,
)
"""Begins a line that states a score, readable or not; `The score reflects ..` states none."""
BEST_SCORE = 10.0
"""The N of a line `Score: N` that is reward 1, as JUDGE_PROMPT says; 0 is reward 0."""
MAX_SCORE_LINE_CHARACTERS = 200
"""Characters. A longer line is no score: what looks for one takes time with the square of its
length."""


class LlmJudge:
    """Grades with one language model; all from one event loop."""

    def __init__(self, settings: JudgeVerifier, count: Callable[[Outcome], None]) -> None:
        self._settings = settings
        self._asking = Asking(settings, count)

    async def grade(self, completion: str, row: Any) -> Grade:
        """Raises NoAnswer, also if the last line of the judge's text is not a score."""
        settings = self._settings
        body = {
            "model": settings.model,
            "messages": [{"role": "user", "content": question(settings.prompt, completion, row)}],
            "temperature": 0,
            "max_tokens": settings.longest_answer,
        }
        url = f"{settings.url.rstrip('/')}/chat/completions"
        return await self._asking.ask(url, body, lambda answer: self._read(answer["choices"][0]))

    async def close(self) -> None:
        await self._asking.close()

    def _read(self, choice: Any) -> Grade:
        judge_text = choice["message"]["content"]
        if choice.get("finish_reason") == "length":  # of a 10 the 1 may be there
            raise ValueError(
                f"it is cut off after {self._settings.longest_answer} tokens, "
                f"...{judge_text[-100:]!r}"
            )
        score = find_score(judge_text)
        if score is None:
            raise ValueError(f"no line `Score: N` in {judge_text[-100:]!r}")
        if not 0 <= score <= BEST_SCORE:
            raise ValueError(f"score {score:g} is not from 0 to {BEST_SCORE:g}")
        return make_grade(score / BEST_SCORE, "the judge gave")


def question(template: str, completion: str, row: Any) -> str:
    """The template with its places filled, once: what a completion writes is no place."""
    fields = row if isinstance(row, dict) else {}
    places = {name: _as_text(field_value) for name, field_value in fields.items()} | {
        "completion": final_answer(completion)
    }
    return _PLACE.sub(lambda place_match: places.get(place_match[1], place_match[0]), template)


def find_score(judge_text: str) -> float | None:
    """The number of the last line that says `Score: N`, on the scale to 10.

    A scale of the line's own counts: 4/5, 4 out of 5, (0-5): 4 and 80 % are 8 of 10. None without
    such a line, and if the last one is unreadable: an earlier line that it corrects is no verdict.
    """
    lines = reversed(judge_text.replace("\N{MINUS SIGN}", "-").splitlines())
    verdict = next((line for line in lines if _states_score(line)), "")
    score_match = _SCORE.fullmatch(verdict) if len(verdict) <= MAX_SCORE_LINE_CHARACTERS else None
    if score_match is None:
        return None
    scale = float(
        score_match["of"] or (score_match["percent"] and 100) or score_match["most"] or BEST_SCORE
    )
    return float(score_match["score"]) * BEST_SCORE / scale if scale else None


def _states_score(line: str) -> bool:
    return bool(
        _VERDICT.match(line) or (len(line) <= MAX_SCORE_LINE_CHARACTERS and _SCORE.fullmatch(line))
    )


def _as_text(field_value: object) -> str:
    """A chat is what its messages hold, with who says it."""
    if (
        isinstance(field_value, list)
        and field_value
        and all(isinstance(item, dict) and "content" in item for item in field_value)
    ):
        return "\n\n".join(f"{item.get('role', '')}: {item['content']}" for item in field_value)
    return str(field_value)
