"""Lines of a loop that have no marks between names and values: `iteration 3 mean reward 0.5 loss
1.2`.

Prose has such lines too. So they are read only if at least five lines have the same words in the
same places, and their steps rise.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

_NUMBER = re.compile(
    r"(?P<value>[-+]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,3})?%?)(?P<unit>[A-Za-z/]{0,8})"
)
_NAME = re.compile(r"[A-Za-z_][\w./@-]{0,120}")
_JOINING_WORDS = {"and", "with", "is", "was", "of", "at", "a", "an", "the"}


def repeated_forms(lines: Iterable[tuple[str, tuple[int, ...]]]) -> set[str]:
    """Forms of at least five lines with steps that rise. `lines`: the form, which is the line
    without its numbers, and the steps of each.
    """
    steps_by_form: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for form, steps in lines:
        steps_by_form[form].append(steps)
    forms = set()
    for form, form_steps in steps_by_form.items():
        num_falls = sum(later <= earlier for earlier, later in pairwise(form_steps))
        # Share of lines whose step may not be above the one before it: after a restart, say
        if len(set(form_steps)) >= 5 and num_falls <= 0.25 * len(form_steps):
            forms.add(form)
    return forms


def spaced_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of a text in which words and numbers take turns.

    A number with a unit is no value.
    """
    words: list[str] = []
    for token in text.split():
        if number := _NUMBER.fullmatch(token):
            names = [word for word in words if word.casefold() not in _JOINING_WORDS]
            # Words of a name
            if 0 < len(names) <= 4 and not number["unit"]:
                yield "_".join(names), number["value"]
            words = []
        elif _NAME.fullmatch(token):
            words.append(token)
        else:
            words = []
