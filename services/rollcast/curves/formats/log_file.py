"""A file or folder that a trainer wrote: its bytes, within a bound, and the text that they spell."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.bounds import MAX_ROWS, refuse_above
from rollcast.curves.left_out import Tell

MAX_FILE_BYTES = 64 << 20
UTF16_SAMPLE_BYTES = 4096
NO_TEXT = [chr(code) for code in (*range(0x00, 0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20))]
"""Control characters that no log and no table holds. Tab, line ends and the escape of colors are not among them."""
_COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class LogFile:
    """Attributes:
    path: of a file or a folder.
    tell: receives sentences on data that was left out.
    is_growing: whether an unfinished last line may still grow, so that it is left for a later look.
    """

    path: Path
    tell: Tell
    is_growing: bool = False

    @cached_property
    def content(self) -> bytes:
        """All bytes of the file. Raises UserError: it cannot be read, is too large, or holds nothing."""
        content = read_bytes(self.path)
        if not content.strip():
            raise UserError(f"{self.path}: is empty; give a file with evaluations")
        return content

    @cached_property
    def text(self) -> str:
        """What the bytes spell. Raises UserError: it is not text."""
        return as_text(self.content, self.path, self.tell)

    @cached_property
    def is_json(self) -> bool:
        """Whether the text begins as an object or a list does. JSON never writes a name between single quotes."""
        begin = self.text.lstrip()[:2]
        return begin[:1] in ("{", "[") and begin != "{'"

    @cached_property
    def ended_text(self) -> str:
        """The text without a last line that may still grow: half of a number would be another number."""
        return self.text[: self.text.rfind("\n") + 1] if self.is_growing else self.text


def read_bytes(path: Path, most: int = MAX_FILE_BYTES) -> bytes:
    """All of the file. Raises UserError: it cannot be read or is too large."""
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
    """UTF-8, UTF-16 or, if it is neither, Latin-1, which `tell` reports. Colors of a terminal are left out.

    Raises UserError: it is not text.
    """
    text = _decoded(content, path, tell)
    refuse_above(text.count("\n"), MAX_ROWS, "lines")
    if any(character in text for character in NO_TEXT):
        raise UserError(f"{path}: is not a text file; give one that `rollcast fit --help` lists")
    return _COLORS.sub("", text).replace("\r\n", "\n")


def _decoded(content: bytes, path: Path, tell: Tell) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", errors="replace")
    head = content[:UTF16_SAMPLE_BYTES]
    for first, encoding, line_end in ((1, "utf-16-le", b"\n\x00"), (0, "utf-16-be", b"\x00\n")):
        # In Latin text every other byte is 0. Frames around a table have other bytes, but their lines end.
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
            tell(f"{path}: is not UTF-8, read as Latin-1")
        return content.decode("latin-1")
