"""Knights and knaves: find out who always speaks the truth and who always lies."""

import re
from typing import Any


def knights_and_knaves(answer: str, reference: Any) -> float:
    """1 if the last statements of the answer name each person once, with the right kind.

    `answer`: the text after the think block, such as `Zoey is a knight. Jacob is a knave.`; `reference`:
    {name: "knight" | "knave"}. As many of the last statements count as there are persons, so that naming both kinds
    for one of them is wrong.
    """
    kinds = {str(name).casefold(): kind for name, kind in reference.items()}
    names = "|".join(re.escape(name) for name in sorted(kinds, key=len, reverse=True))
    gap = r"[\s*_]{0,8}"  # bounded: an answer that consists of spaces must not cost minutes
    statement = re.compile(rf"\b({names})\b{gap}(?:is|:|=|-)?{gap}(?:an?\s)?{gap}\b(knight|knave)\b")
    found = statement.findall(answer.casefold())[-len(kinds) :]
    return float(len(found) == len(kinds) and dict(found) == kinds)
