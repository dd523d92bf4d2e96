"""Programs that mean harm: what each tries, by family, and what would show that it got through.

hostile_programs.txt has them, each as the body of a function, run as
`try: BODY except BaseException: pass` before `return 2`; what stands in double angle brackets is
filled in with things that really exist (a listener, a victim process, files).
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Hostile:
    family: str
    number: int
    source: str

    @property
    def name(self) -> str:
        return f"{self.family}-{self.number}"


def read_families() -> dict[str, list[str]]:
    """The programs of each family, as hostile_programs.txt has them."""
    families: dict[str, list[str]] = {}
    for section in Path(__file__).with_suffix(".txt").read_text().split("=== ")[1:]:
        family, _, programs = section.partition("\n")
        families[family] = re.split(r"\n---.*\n", programs.rstrip("\n"))
    return families


FAMILIES = read_families()
_HELPERS = """
def find(text):
    start = text.find('<<prefix>>')
    return text[start : start + 40] if start >= 0 else None

def chunks(path):
    with open(path, 'rb') as file:
        for line in open(path.replace('mem', 'maps')):
            start, end = (int(part, 16) for part in line.split()[0].split('-'))
            file.seek(start)
            yield file.read(end - start).decode(errors='replace')
"""


def hostile_programs(filled: dict[str, object]) -> list[Hostile]:
    """All of them, with the real things in place."""
    programs = []
    for family, bodies in FAMILIES.items():
        for number, body in enumerate(bodies):
            attempt = textwrap.indent(body, " " * 8)
            source = (
                f"{_HELPERS}\ndef f(x):\n    try:\n{attempt}\n    except BaseException:\n        "
                "pass\n    return 2\n"
            )
            for name, value in (filled | {"unique": f"rollcast-hostile-{family}-{number}"}).items():
                source = source.replace(f"<<{name}>>", str(value))
            programs.append(Hostile(family, number, source))
    return programs
