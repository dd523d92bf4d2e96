"""Text of others on one line of a terminal."""

_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], "\N{REPLACEMENT CHARACTER}")


def one_line(text: str) -> str:
    """Texts of models, and exceptions that repeat them, could move the cursor or hide earlier output."""
    return " ".join(text.split()).translate(_CONTROLS)


def short_line(text: str, most: int) -> str:
    """Longest text; a longer one ends in dots."""
    line = one_line(text)
    return line if len(line) <= most else f"{line[:most]}..."
