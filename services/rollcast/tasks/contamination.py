"""Whether a training prompt asks what an evaluated prompt asks, in another spelling.

Two prompts are duplicates only if nothing that a reader can see differs
(`rollcast.tasks.prompt.normalise`). Training on a benchmark is worse than losing a row, so a
prompt is contaminated more easily: if the normal forms of the texts are equal, or those of the last
messages and the answers. So neither a system message nor the id of an episode's row makes another
question. Of countdown the sorted puzzle is compared, of an episode without an answer its fields
except ids and sources. A message that many rows share with its answer, such as `Play the game.`,
names no question.

    compatibility forms, invisible signs, case       ４ = 4, ﬁ = fi, F = f
    blanks, also those of LaTeX, and next to signs   a line break, two blanks, \\quad, n + 1 = n+1
    delimiters of formulas, braces of powers         $n^{2}$, \\(n^2\\), n² = n^2
    typographic quotes and dashes                    ’ = ', – = -
    a label, the last full stop, a cue               Problem 3: Find n. Answer: = Find n
                                                     (never 5!, a factorial)
"""

import hashlib
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from rollcast.tasks import countdown
from rollcast.tasks.chats import Chat, flat
from rollcast.tasks.verifiers import CODE

COUNTDOWN = "countdown"
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_PLAIN_SIGNS = (
    dict.fromkeys("‘’‚‛´", "'") | dict.fromkeys("“”„‟«»", '"') | dict.fromkeys("‐‑‒–—―−", "-")
)
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
_LABEL = re.compile(
    r"(?:[*#]*(?:problem|question|exercise|q)(?:\**:| ?\d{1,4}\**[:.)](?!\d))\** ?)+"
)
_CUE = re.compile(r"(?:\*\*)?(?:(?<!\w)answer|(?<=[.?:])a)(?:\*\*)? ?:(?:\*\*)?\Z")
_END_SIGNS = ".?: "
_BOOKKEEPING = re.compile(r"(?i:.*_)?(?i:id|idx|index|uuid|source|split|url|license)")
"""Names of fields that number a row or name its origin."""
MAX_CONTEXTS = 3
"""Different rows of an evaluated set, and of the training rows, that may share a last message and
its answer. If more do, both are a common instruction, and the rest of the row asks."""


@lru_cache(maxsize=16)  # one row asks for its prompt several times
def normal_form(text: str) -> str:
    """The text under which a training prompt counts as an evaluated one."""
    form = text
    if not text.isascii():
        form = _RAISED.sub(
            lambda raised_match: "^" + "".join(_SUPERSCRIPTS[sign] for sign in raised_match[0]),
            form,
        )
        form = _LOWERED.sub(
            lambda lowered_match: "_" + "".join(_SUBSCRIPTS[sign] for sign in lowered_match[0]),
            form,
        )
        form = _TYPOGRAPHIC.sub(
            lambda sign_match: _PLAIN_SIGNS[sign_match[0]], _INVISIBLE.sub("", form)
        )
        form = unicodedata.normalize("NFKC", form)
    form = form.casefold().replace("``", '"').replace("''", '"').replace("`", "'")
    if "\\" in form or "$" in form or "~" in form:
        form = _LATEX_BLANK.sub(
            " ", _ESCAPED.sub(r"\1", _DELIMITER.sub(" ", form)).replace("$", " ")
        )
        form = _FRACTION.sub(r"\\frac", form)
    if "{" in form:
        form = _SCRIPT.sub(r"\1\2", form)
    form = _BLANK_AT_SIGN.sub("", " ".join(form.split()))
    return _strip_label(form) or form or text


def _strip_label(form: str) -> str:
    """Without `problem 3:` before the question, the signs that end it, and `answer:` after it."""
    label = _LABEL.match(form)
    question = form[label.end() :] if label else form
    cue = _CUE.search(question, max(0, len(question) - 20))  # a cue has at most 14 characters
    if cue:
        question = question[: cue.start()]
    return question.rstrip(_END_SIGNS)


@dataclass(frozen=True, slots=True)
class PromptQuestion:
    """The parts of a prompt by which it is an evaluated one or not, as digests of their normal
    forms.
    """

    text_digest: bytes
    """The bare text of all messages."""
    without_system: bytes
    """The bare text without system messages."""
    message_and_answer: bytes
    """The last message with its answer: the same question under another system message, or in a row
    with another id."""
    context: bytes
    """The rest of the row: earlier messages and, of an episode, its other fields."""
    episode: bytes | None = None
    """Text and row of an episode. None = answered once."""

    @property
    def main(self) -> bytes:
        """The part that prompts of one kind share if they ask the same."""
        return self.episode or self.text_digest


def single(bare: Chat, verifier: str = "", answer: object = None) -> PromptQuestion:
    """A prompt that is answered once.

    `bare`: its chat without a template around it; `answer`: None = not known.
    """
    puzzle = _puzzle(verifier, answer)
    if puzzle is not None:
        return PromptQuestion(puzzle, puzzle, puzzle, b"")
    text_digest = _digest(normal_form(flat(bare)))
    non_system_messages = [message for message in bare if message.role != "system"]
    return PromptQuestion(
        text_digest,
        _digest(normal_form(flat(non_system_messages))),
        *_answer_digests(bare, verifier, answer, {}),
    )


def episode(bare: Chat, row: Any, verifier: str = "", answer: object = None) -> PromptQuestion:
    """A prompt that is answered in an environment, which gets the whole row.

    `answer`: None = not known.
    """
    text = normal_form(flat(bare))
    chat_form = [
        {"role": message.role, "content": normal_form(message.content)} for message in bare
    ]
    forms = {name: _row_form(field_value) for name, field_value in row.items()}
    other_fields = {name: form for name, form in forms.items() if form not in (text, chat_form)}
    with_row = _digest(f"{text}\n{json.dumps(other_fields, sort_keys=True)}")
    plain = single(bare, verifier, answer)
    if _puzzle(verifier, answer) is not None:
        return replace(plain, episode=with_row)
    message_and_answer, context = _answer_digests(bare, verifier, answer, other_fields)
    return PromptQuestion(
        plain.text_digest, plain.without_system, message_and_answer, context, with_row
    )


def _answer_digests(
    bare: Chat, verifier: str, answer: object, fields: dict[str, Any]
) -> tuple[bytes, bytes]:
    """`message_and_answer` and `context`.

    A question without an answer has its row there, except ids and origins.
    """
    earlier = [[message.role, normal_form(message.content)] for message in bare[:-1]]
    if answer is None:
        conversation = [message for message in earlier if message[0] != "system"]
        # Copies of a programming problem have other tests
        answer_form = [conversation, {} if verifier == CODE else _without_bookkeeping(fields)]
    else:
        answer_form = _answer_form(answer)
    question = [normal_form(bare[-1].content), answer_form]
    return (
        _digest(json.dumps(question, sort_keys=True, default=str)),
        _digest(json.dumps([earlier, fields], sort_keys=True)),
    )


def _puzzle(verifier: str, reference: object) -> bytes | None:
    """A countdown in one order of its numbers; None if it is no such puzzle."""
    if verifier != COUNTDOWN or not isinstance(reference, dict):
        return None
    numbers = reference.get("numbers")
    target = reference.get("target")
    if not isinstance(numbers, list | tuple) or not isinstance(target, int):
        return None
    if not all(isinstance(number, int) for number in numbers):
        return None
    return _digest(normal_form(countdown.prompt_text(tuple(sorted(numbers)), target)))


def _row_form(field_value: Any) -> Any:
    if isinstance(field_value, str):
        # A longer text of an episode's row is compared as it is: it is data, and would take long
        return normal_form(field_value) if len(field_value) <= (1 << 16) else field_value
    if isinstance(field_value, list | tuple):
        return [_row_form(item) for item in field_value]
    if isinstance(field_value, dict):
        return {str(name): _row_form(item) for name, item in field_value.items()}
    return field_value


def _answer_form(answer: object) -> Any:
    """4, 4.0 and "4" are one answer."""
    if isinstance(answer, float) and answer.is_integer():
        return str(int(answer))
    return _row_form(str(answer) if isinstance(answer, int | float) else answer)


def _without_bookkeeping(row_form: Any) -> Any:
    """The fields, of whatever depth, that do more than number a row or name its origin."""
    if not isinstance(row_form, dict):
        return row_form
    kept_fields = {
        name: _without_bookkeeping(item)
        for name, item in row_form.items()
        if not _BOOKKEEPING.fullmatch(name)
    }
    return {name: item for name, item in kept_fields.items() if item not in ({}, None, "")}


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(slots=True)
class EvaluatedQuestions:
    """The questions of held-out and downstream prompts."""

    _single: set[bytes] = field(default_factory=set)
    """Whole texts of prompts that are answered once."""
    _without_system: set[bytes] = field(default_factory=set)
    _of_episodes: defaultdict[bytes, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    """Whole texts of episodes, each with its answers. A text with a single answer decides for a
    prompt that is answered once; of a common one the answer must be the same, too."""
    _episodes: set[bytes] = field(default_factory=set)
    """Texts with their rows."""
    _is_rare: dict[bytes, bool] = field(default_factory=dict)
    """Last messages with their answers, and whether few rows share each."""
    _decisive: set[bytes] = field(default_factory=set)
    """The pairs that few training rows share as well: only they decide."""

    def add(self, questions: Sequence[PromptQuestion]) -> None:
        """One evaluated set."""
        for question in questions:
            if question.episode is not None:
                self._episodes.add(question.episode)
                self._of_episodes[question.text_digest].add(question.message_and_answer)
            else:
                self._single.add(question.text_digest)
                self._without_system.add(question.without_system)
        for digest, contexts in _contexts(questions).items():
            self._is_rare[digest] = (
                self._is_rare.get(digest, True) and len(contexts) <= MAX_CONTEXTS
            )

    def exclude_common(self, trained: Iterable[PromptQuestion]) -> None:
        """Let last messages with their answers decide, from here on, except common ones such as
        `Play the game.`
        """
        contexts = _contexts(
            question for question in trained if self._is_rare.get(question.message_and_answer)
        )
        self._decisive = {
            digest
            for digest, is_rare in self._is_rare.items()
            if is_rare and len(contexts.get(digest, ())) <= MAX_CONTEXTS
        }

    def holds(self, question: PromptQuestion) -> bool:
        """Whether a training prompt asks one of them."""
        text_digest = question.text_digest
        if question.message_and_answer in self._decisive or text_digest in self._single:
            return True
        if question.episode is not None:
            return question.episode in self._episodes
        if question.without_system in self._single or text_digest in self._without_system:
            return True
        return len(self._of_episodes.get(text_digest, ())) == 1


def _contexts(questions: Iterable[PromptQuestion]) -> defaultdict[bytes, set[bytes]]:
    """The different rows that share a last message and its answer."""
    contexts: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for question in questions:
        contexts[question.message_and_answer].add(question.context)
    return contexts
