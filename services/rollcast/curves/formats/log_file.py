"""A file or folder that a trainer wrote: its bytes, within a bound, and the text
that they spell.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.amounts import Tell
from rollcast.curves.sheet import MAX_ROWS, refuse_above

MAX_FILE_BYTES = 64 << 20
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff]")
"""Control characters apart from tab and line ends. A log holds some if a model printed them; a
binary file is full of them. The last one is the byte-order mark, which is also inside of files that
were joined."""
JSON_LINE = re.compile(r"^[ \t]*\[?\{\".*$", re.MULTILINE)
_TERMINAL_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?)")
"""Colours, movements of the cursor, titles and links."""


class OtherFormat(UserError):  # noqa: N818  (the next format is asked; this is said if none reads the file)
    """A file that began like one of a format is not of it."""


def unknown_form(path: Path) -> UserError:
    """The refusal of a text that no format reads."""
    return UserError(
        f"{path}: the form of this log is not known; give CSV, JSON, lines of NAME=VALUE with a "
        "step, or a format that `rollcast fit --help` lists"
    )


@dataclass(frozen=True)
class LogFile:
    """A log of a trainer, before it is read.

    Attributes:
        path: of a file or a folder.
        tell: receives sentences on data that was left out.
        is_growing: whether an unfinished last line may still grow, so that it is left for a later
            look.
        max_bytes: the largest file that is read.
        printed: a text that a file contains and that is read instead of the file, as the outputs
            of a notebook are.
    """

    path: Path
    tell: Tell
    is_growing: bool = False
    max_bytes: int = MAX_FILE_BYTES
    printed: str | None = None

    @cached_property
    def content(self) -> bytes:
        """All bytes of the file. Raises UserError: it cannot be read or is too large."""
        try:
            with self.path.open("rb") as file:
                # One byte more shows that the file is too large, even if it grows while it is read.
                content = file.read(self.max_bytes + 1)
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot be read ({error.strerror}); give a file or folder that a "
                "trainer wrote"
            ) from None
        if len(content) > self.max_bytes:
            raise UserError(
                f"{self.path}: larger than {self.max_bytes >> 20} MiB; give the evaluations only"
            )
        return content

    @cached_property
    def text(self) -> str:
        """The bytes as text in UTF-8, UTF-16 or, if it is neither, Latin-1, which `tell` reports.

        Codes of a terminal and control characters are left out, and a progress bar's returns end
        lines. A last line that may still grow is left out too, unless it is the end of JSON: half
        of a number would be another number. Raises UserError: it is not text.
        """
        text = self._decode() if self.printed is None else self.printed
        if "\x1b" in text:
            text = _TERMINAL_CODE.sub("", text)
        clean = _NO_TEXT.sub("", text)
        # Share of control characters above which a file is binary. Of evenly distributed bytes they
        # are a tenth.
        if len(text) - len(clean) > 0.02 * len(text):
            raise UserError(
                f"{self.path}: is not a text file; give one that `rollcast fit --help` lists"
            )
        text = clean.replace("\r\n", "\n").replace("\r", "\n")
        refuse_above(text.count("\n"), MAX_ROWS, "lines")
        is_whole = is_json(text) and text.endswith(("}", "]"))
        return text[: text.rfind("\n") + 1] if self.is_growing and not is_whole else text

    @cached_property
    def console(self) -> str:
        """The text without lines of JSON, whose own texts may hold what a console printed."""
        return JSON_LINE.sub("", self.text)

    def _decode(self) -> str:
        content = self.content
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            return content.decode("utf-16", errors="replace")
        # The first bytes show whether every second byte is 0
        head = content[:4096]
        for first, encoding, line_end in ((1, "utf-16-le", b"\n\x00"), (0, "utf-16-be", b"\x00\n")):
            # In Latin text every other byte is 0. Frames around a table have other bytes, but their
            # lines end.
            ends = sum(head[offset : offset + 2] == line_end for offset in range(0, len(head), 2))
            if len(head) > 3 and (ends or head[first::2].count(0) > 0.9 * (len(head) // 2)):
                try:
                    return content.decode(encoding)
                except UnicodeDecodeError:
                    break
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            if b"\x00" not in content:
                self.tell(f"{self.path}: is not UTF-8, read as Latin-1")
            # Latin-1 takes any bytes; a binary file is refused later for its control characters.
            return content.decode("latin-1")


_JSON_BEGIN = re.compile(
    r"""\s*(?:\{\s*(?:"|\}|$)|\[\s*(?:[\[{"\]]|$|-?\d[\d.eE+-]*\s*[,\]]|true|false|null|NaN))"""
)


def is_json(text: str) -> bool:
    """Whether the text begins as a JSON object or list does, and not as a console's `[INFO]` or
    `{'loss': ..`.
    """
    return bool(_JSON_BEGIN.match(text))
