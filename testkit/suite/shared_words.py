"""The test files that name what a change names: functions, settings, sentences."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from testkit.suite.changes import ROOT, git

_WORD = re.compile(r"[a-z_]{3,}")


def changed_text(commit: str, changed: Iterable[str], root: Path = ROOT) -> str:
    """Names of the changed files, and the lines that differ between a commit
    and the working tree.
    """
    files = [file for file in changed if file.endswith((".py", ".yaml", ".tpl", ".js", ".html"))]
    if not files:
        return ""
    diff = git("diff", "--unified=0", "--no-renames", commit, "--", *files, root=root).splitlines()
    return "\n".join(
        [
            *files,
            *(line[1:] for line in diff if line[:1] in "+-" and line[:3] not in ("+++", "---")),
        ]
    )


def rank_by_words(change: str, texts: Mapping[str, str]) -> dict[str, int]:
    """File -> its rank, 0 for the one that shares most with the change. `texts`: file -> its text.

    A shared word counts by the logarithm of how few files have it (inverse document frequency). A
    long file shares words by chance: the sum is divided by the number of its words to the power .3,
    found on ten fixes of the history.
    """
    words = {file: frozenset(_WORD.findall(text.lower())) for file, text in texts.items()}
    num_files = Counter(word for file_words in words.values() for word in file_words)
    change_words = frozenset(_WORD.findall(change.lower()))

    def likeness(file: str) -> float:
        shared = sum(math.log(len(words) / num_files[word]) for word in words[file] & change_words)
        return shared / math.pow(max(1, len(words[file])), 0.3)

    return {
        file: rank
        for rank, file in enumerate(sorted(texts, key=lambda file: (-likeness(file), file)))
    }


def in_turn(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Two orders of the same files, taken in turn."""
    return list(dict.fromkeys(file for pair in zip(first, second, strict=True) for file in pair))
