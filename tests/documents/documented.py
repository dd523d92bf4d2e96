"""The pages of the project, and the commands that stand in them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LOG = ("CHANGELOG.md", "lab-notes.md", "first-hour.md")
"""They tell what was once; commands in them may be gone, and lines of a screen look like commands."""
PROGRAMS = ("rollcast", "make", "python", "helm", "kubectl", "pip", "vllm", "curl", "uv", "docker")
_FENCE = re.compile(r"^( *)```(\w*)(?: +title=\"([^\"]+)\")?$")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    title: str
    text: str


@dataclass(frozen=True)
class Documented:
    """A command, with its arguments and what stands behind `#`."""

    page: Path
    line: int
    words: tuple[str, ...]
    remark: str

    @property
    def id(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}:{'_'.join(self.words[:3])}"


def fenced(page: Path) -> list[Block]:
    """The blocks between fences."""
    found, opened, lines = [], None, page.read_text().splitlines()
    for number, line in enumerate(lines):
        match = _FENCE.match(line)
        if match and opened is None:
            opened = (number, match[2], match[3] or "")
        elif line.strip() == "```" and opened is not None:
            text = "\n".join(lines[opened[0] + 1 : number]) + "\n"
            found.append(Block(page, opened[0] + 2, opened[1], opened[2], text))
            opened = None
    return found


def indented(page: Path) -> list[Block]:
    """Blocks of four spaces."""
    found: list[Block] = []
    lines = [(number, line) for number, line in enumerate(page.read_text().splitlines(), start=1)]
    return found + [Block(page, number, "", "", line[4:]) for number, line in lines if re.match(r"    \S", line)]


def commands(page: Path) -> list[Documented]:
    """Lines of blocks that begin with one of PROGRAMS, continued ones joined."""
    found = []
    shell = [block for block in fenced(page) if block.language in ("sh", "bash")]
    for block in [*shell, *indented(page)]:
        joined = block.text.replace("\\\n", " ")
        for offset, line in enumerate(joined.splitlines()):
            text, _, remark = line.strip().partition("  #") if "  #" in line else line.strip().partition(" # ")
            if re.match(rf"(?:\.venv/bin/)?(?:{'|'.join(PROGRAMS)})\b(?![:=/,.])", text):
                try:
                    words = tuple(shlex.split(text.rstrip("\\").partition(" > ")[0].partition(" | ")[0]))
                except ValueError:  # prose with an apostrophe
                    continue
                found.append(Documented(page, block.line + offset, words, remark.strip()))
    return found
