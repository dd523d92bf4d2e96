"""What somebody else's file holds: bytes, bounded, and the text that they spell."""

from __future__ import annotations

import re
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.bounds import MAX_ROWS, refuse_above
from rollcast.curves.left_out import Tell

MAX_FILE_BYTES = 64 << 20
NO_TEXT = [chr(code) for code in (*range(0x00, 0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20))]
"""Control characters that no log and no table holds; tab, line ends and the escape of colours are none of them."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_UTF16_SAMPLE = 4096


def read_bytes(path: Path, most: int = MAX_FILE_BYTES) -> bytes:
    """All of the file. Raises UserError where it cannot be read or is too large."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); give a file or folder that a trainer wrote"
        ) from None
    if len(content) > most:
        raise UserError(f"{path}: larger than {most >> 20} MiB; give the evaluations only")
    return content


def as_text(content: bytes, path: Path, tell: Tell) -> str:
    """UTF-8, UTF-16 or, where it is neither, Latin-1, which is told. Colours of a terminal are left out.

    Raises UserError: it is no text.
    """
    text = _decoded(content, path, tell)
    refuse_above(text.count("\n"), MAX_ROWS, "lines")
    if any(character in text for character in NO_TEXT):
        raise UserError(f"{path}: is no text file; give one that `rollcast fit --help` lists")
    return _COLOURS.sub("", text).replace("\r\n", "\n")


def _decoded(content: bytes, path: Path, tell: Tell) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", errors="replace")
    head = content[:_UTF16_SAMPLE]
    for first, encoding, line_end in ((1, "utf-16-le", b"\n\x00"), (0, "utf-16-be", b"\x00\n")):
        # Of Latin text every other byte is 0; frames around a table have other bytes, but lines that end.
        ends = sum(head[place : place + 2] == line_end for place in range(0, len(head), 2))
        if len(head) > 3 and (ends or head[first::2].count(0) > 0.9 * (len(head) // 2)):
            try:
                return content.decode(encoding)
            except UnicodeDecodeError:
                break
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        if b"\x00" not in content:
            tell(f"{path}: is no UTF-8, read as Latin-1")
        return content.decode("latin-1")
