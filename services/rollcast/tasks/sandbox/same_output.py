"""Whether what a program printed is what was to be printed."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation


def same_output(output: str, expected: str) -> bool:
    """Line by line, white space at the ends of lines and of the text apart; numbers may be written differently."""
    got, wanted = ([line.rstrip() for line in text.rstrip().split("\n")] for text in (output, expected))
    return len(got) == len(wanted) and all(map(_same_line, got, wanted))


def _same_line(got: str, wanted: str) -> bool:
    if got == wanted:
        return True
    ours, theirs = got.split(), wanted.split()
    return len(ours) == len(theirs) and all(map(_same_word, ours, theirs))


def _same_word(got: str, wanted: str) -> bool:
    if got == wanted:
        return True
    try:
        return Decimal(got) == Decimal(wanted)
    except InvalidOperation:
        return False
