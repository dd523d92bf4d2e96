"""Whether a training prompt asks what an evaluated prompt asks, in another spelling.

Two prompts are duplicates only if nothing that a reader can see differs (`rollcast.tasks.prompts.normalise`). Training
on a benchmark is worse than losing a row, so a prompt is contaminated more easily: if the normal forms of the same
parts are equal. These are the text, of an episode text and reference, of countdown the sorted puzzle.

    compatibility forms, invisible signs, case       ４ = 4, ﬁ = fi, F = f
    blanks, also those of LaTeX, and next to signs   a line break, two blanks, \\quad, n + 1 = n+1
    delimiters of formulas, braces of powers         $n^{2}$, \\(n^2\\), n² = n^2
    typographic quotes and dashes                    ’ = ', – = -
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rollcast.tasks import countdown
from rollcast.tasks.chats import Chat, flat

COUNTDOWN = "countdown"
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_PLAIN_SIGNS = dict.fromkeys("‘’‚‛´", "'") | dict.fromkeys("“”„‟«»", '"') | dict.fromkeys("‐‑‒–—―−", "-")
_TYPOGRAPHIC = re.compile(f"[{''.join(_PLAIN_SIGNS)}]")
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()", strict=True))
_RAISED = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_LOWERED = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
_ESCAPED = re.compile(r"\\([%#&$_{}])")
_DELIMITER = re.compile(
    r"\$|\\[()\[\]]|\\(?:left|right)(?![A-Za-z])|\\(?:begin|end)\{(?:math|displaymath|equation|align|gather)\*?\}"
)
_LATEX_BLANK = re.compile(r"\\(?:[,;:! ]|q?quad(?![A-Za-z]))|~")
_FRACTION = re.compile(r"\\[dt]frac(?![A-Za-z])")
_SCRIPT = re.compile(r"([\^_])\s*\{([^{}]*)\}")
_BLANK_AT_SIGN = re.compile(r" (?=[^\w ])|(?<=[^\w ]) ")


def normal_form(text: str) -> str:
    """The text under which a training prompt counts as an evaluated one."""
    form = text
    if not text.isascii():
        form = _RAISED.sub(lambda found: "^" + "".join(_SUPERSCRIPTS[sign] for sign in found[0]), form)
        form = _LOWERED.sub(lambda found: "_" + "".join(_SUBSCRIPTS[sign] for sign in found[0]), form)
        form = _TYPOGRAPHIC.sub(lambda found: _PLAIN_SIGNS[found[0]], _INVISIBLE.sub("", form))
        form = unicodedata.normalize("NFKC", form)
    form = form.casefold().replace("``", '"').replace("''", '"').replace("`", "'")
    if "\\" in form or "$" in form or "~" in form:
        form = _LATEX_BLANK.sub(" ", _ESCAPED.sub(r"\1", _DELIMITER.sub(" ", form)).replace("$", " "))
        form = _FRACTION.sub(r"\\frac", form)
    if "{" in form:
        form = _SCRIPT.sub(r"\1\2", form)
    form = _BLANK_AT_SIGN.sub("", " ".join(form.split()))
    return form or text


@dataclass(frozen=True, slots=True)
class PromptQuestion:
    """The parts of a prompt by which it is an evaluated one or not, as digests of their normal forms."""

    whole: bytes
    """The bare text of all messages."""
    without_system: bytes
    """The bare text without system messages."""
    episode: bytes | None = None
    """Text and row of an episode. None = answered once."""

    @property
    def main(self) -> bytes:
        """The part that prompts of one kind share if they ask the same."""
        return self.episode or self.whole


def single(bare: Chat, verifier: str = "", reference: object = None) -> PromptQuestion:
    """A prompt that is answered once. `bare`: its chat without a template around it."""
    puzzle = _puzzle(reference) if verifier == COUNTDOWN else None
    if puzzle is not None:
        return PromptQuestion(_digest(puzzle), _digest(puzzle))
    text_digest = _digest(normal_form(flat(bare)))
    non_system_messages = [message for message in bare if message.role != "system"]
    return PromptQuestion(
        text_digest,
        text_digest if len(non_system_messages) == len(bare) else _digest(normal_form(flat(non_system_messages))),
    )


def episode(bare: Chat, row: Any) -> PromptQuestion:
    """A prompt that is answered in an environment, which gets the whole row."""
    text = normal_form(flat(bare))
    plain = single(bare)
    other_fields = {name: form for name, field_value in row.items() if (form := _row_form(field_value)) != text}
    parts = json.dumps(other_fields, sort_keys=True)
    return PromptQuestion(plain.whole, plain.without_system, _digest(f"{text}\n{parts}"))


def _puzzle(reference: object) -> str | None:
    """A countdown in one order of its numbers; None if the reference is no puzzle."""
    if not isinstance(reference, dict):
        return None
    numbers = reference.get("numbers")
    target = reference.get("target")
    if not isinstance(numbers, list | tuple) or not isinstance(target, int):
        return None
    if not all(isinstance(number, int) for number in numbers):
        return None
    return normal_form(countdown.prompt_text(tuple(sorted(numbers)), target))


def _row_form(found: Any) -> Any:
    if isinstance(found, str):
        # A longer text of an episode's row is compared as it is: it is data, and would take long
        return normal_form(found) if len(found) <= (1 << 16) else found
    if isinstance(found, list | tuple):
        return [_row_form(item) for item in found]
    if isinstance(found, dict):
        return {str(name): _row_form(item) for name, item in found.items()}
    return found


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(slots=True)
class EvaluatedQuestions:
    """The questions of held-out and downstream prompts."""

    _single: set[bytes] = field(default_factory=set)
    """Whole texts of prompts that are answered once."""
    _without_system: set[bytes] = field(default_factory=set)
    _of_episodes: set[bytes] = field(default_factory=set)
    """Whole texts of episodes: many may share one, so it decides only for a prompt that is answered once."""
    _episodes: set[bytes] = field(default_factory=set)
    """Texts with their rows."""

    def add(self, questions: Iterable[PromptQuestion]) -> None:
        for question in questions:
            if question.episode is not None:
                self._episodes.add(question.episode)
                self._of_episodes.add(question.whole)
            else:
                self._single.add(question.whole)
                self._without_system.add(question.without_system)

    def holds(self, question: PromptQuestion) -> bool:
        """Whether a training prompt asks one of them."""
        text_digest = question.whole
        if question.episode is not None:
            return question.episode in self._episodes or text_digest in self._single
        if text_digest in self._single or question.without_system in self._single:
            return True
        return text_digest in self._without_system or text_digest in self._of_episodes
