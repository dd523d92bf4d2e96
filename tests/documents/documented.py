"""The pages of the project, and the commands that stand in them: in blocks, and in the running
text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "lab" / "notes.md"])
LOG = ("CHANGELOG.md", "notes.md", "first-hour.md")
"""They tell what was once; commands in them may be gone, and lines of a screen look like
commands."""
PROGRAMS = (
    "rollcast", "make", "python", "pip", "uv", "vllm", "torchrun", "pre-commit", "helm", "kubectl",
    "kind", "docker",
    "curl", "wandb", "mlflow", "tensorboard", "prometheus", "promtool", "redis-cli",
)  # fmt: skip
NEEDS = ("a GPU", "a cluster", "docker", "the network", "root")
_FENCE = re.compile(r"^( *)```(\w*)(?: +title=\"([^\"]+)\")?$")
_INDENTED = re.compile(r"^ {4,}\S")
_MARK = re.compile(r"^\*(?:Needs|Other programs than rollcast need) (.+)\.\*$")
_ASSIGNMENTS = re.compile(r"^(?:[A-Z_]+=\S+ )+")
_BEGINS = re.compile(rf"(?:\.venv/bin/)?({'|'.join(PROGRAMS)})(?= )")
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    """Of its first line, from 1."""
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
    needs: str = ""
    """What the page says that it needs: the mark of its line, its section or its page."""
    in_prose: bool = False

    @property
    def id(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}:{'_'.join(self.words[:3])}"

    @property
    def text(self) -> str:
        return " ".join(self.words)


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


def commands(page: Path) -> list[Documented]:
    """Those of blocks, then those of the running text."""
    lines = page.read_text().splitlines()
    inside = {number for block in fenced(page) for number in _lines_of(block)}
    shell = {
        number
        for block in fenced(page)
        if block.language in ("sh", "bash")
        for number in _lines_of(block)
    }
    blocks = {
        number
        for number, line in enumerate(lines, 1)
        if number in shell or (number not in inside and _INDENTED.match(line))
    }
    needs = _needs(lines)
    found: list[Documented] = []
    for number in sorted(blocks):
        if number - 1 in blocks and lines[number - 2].endswith("\\"):
            continue
        whole = number
        text = lines[number - 1].strip()
        while text.endswith("\\") and whole + 1 in blocks:
            text = f"{text[:-1].strip()} {lines[whole].strip()}"
            whole += 1
        found += _parsed(page, number, text, needs[number - 1], in_prose=False)
    prose = "\n".join(
        "" if number in blocks | inside else line for number, line in enumerate(lines, 1)
    )
    for code in _CODE.finditer(prose):
        number = prose.count("\n", 0, code.start())
        found += _parsed(page, number + 1, " ".join(code[1].split()), needs[number], in_prose=True)
    return found


def _lines_of(block: Block) -> range:
    return range(block.line, block.line + block.text.count("\n"))


def _needs(lines: list[str]) -> list[str]:
    """For each line, what the mark of its section says: `*Needs a cluster.*`.

    One before all sections is the page's.
    """
    found, of_page, of_section, in_section = [], "", "", False
    for line in lines:
        if re.match(r"##+ ", line):
            in_section, of_section = True, ""
        if mark := _MARK.match(line):
            of_section = mark[1]
            of_page = of_page if in_section else mark[1]
        found.append(of_section or of_page)
    return found


def _parsed(
    page: Path, line: int, text: str, needs: str, *, in_prose: bool
) -> Iterator[Documented]:
    text, _, remark = text.partition("  #") if "  #" in text else text.partition(" # ")
    own = mark[1] if (mark := re.match(r"needs ([^;]+)", remark.strip())) else ""
    for part in re.split(r" && | \| ", text):
        command = _ASSIGNMENTS.sub("", part.strip())
        if not _BEGINS.match(command):
            continue
        try:
            words = tuple(shlex.split(command.partition(" > ")[0].removesuffix("&")))
        except ValueError:  # prose with an apostrophe
            continue
        words = (Path(words[0]).name, *words[1:])
        yield Documented(page, line, words, remark.strip(), own or needs, in_prose)
