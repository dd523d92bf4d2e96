"""Names of experiments that a console prints before their lines, as verl does with its
configuration.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

SEED = "seed "
"""Begins the title of a run of which a seed alone is printed. Libraries print seeds too, so it
separates no runs."""
_TITLE = re.compile(
    r"(?<!\w)(?P<kind>experiment_name|exp_name|run_name|run-name|experiment|seed)"
    r"(?:['\"]?\s?[:=]\s?['\"]?"
    r"|(?:(?<=--experiment_name)|(?<=--exp_name)|(?<=--run_name)|(?<=--run-name)|(?<=seed)) )"
    r"(?P<name>\w[\w./+@-]{0,200})"
)
_KINDS = ("experiment_name", "exp_name", "run_name", "run-name", "experiment", "seed")
"""The better first: a configuration holds a name of the experiment and a seed."""
Titles = list[tuple[int, str]]


def printed_titles(text: str) -> Titles:
    """The number of the line, from 1, and the name, of each kind that is printed most reliably."""
    titles_by_kind: dict[str, Titles] = {}
    for number, kind, name in _find_titles(text):
        titles = titles_by_kind.setdefault(kind, [])
        # A log may have a title a line
        if len(titles) < 1_000 and (not titles or titles[-1][1] != name):
            titles.append((number, name))
    return next((titles_by_kind[kind] for kind in _KINDS if kind in titles_by_kind), [])


def _find_titles(text: str) -> Iterator[tuple[int, str, str]]:
    if not any(kind in text for kind in _KINDS):
        return
    for number, line in enumerate(text.split("\n"), 1):
        if any(kind in line for kind in _KINDS):
            for match in _TITLE.finditer(line[:5_000]):
                kind = match["kind"]
                if kind != "seed":
                    yield number, kind, match["name"].rstrip(".")
                # In a sentence a word follows `seed`, in a setting a number.
                elif match["name"].isdigit():
                    yield number, kind, f"{SEED}{match['name']}"


def titles_by_row(titles: Titles, line_numbers: Sequence[int]) -> Titles:
    """The row before which each is printed, and the title.

    `line_numbers`: of the rows, ascending.
    """
    return [(bisect_left(line_numbers, number), title) for number, title in titles]
