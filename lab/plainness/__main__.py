"""A table of how plainly a checkout is written: `python -m lab.plainness [--json] [--list] [ROOT]`.

Works on older checkouts, so that a change can be compared with the code before it. --list prints every odd phrase.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.plainness import density
from lab.plainness.density import Module
from lab.plainness.idiom import prose_hits
from lab.plainness.literals import user_visible_hits

CONTROLLER = "rollcast/trainer/control/controller.py"


def figures(root: Path) -> dict[str, float | None]:
    """Every measure of a checkout, by the words that the table shows."""
    modules = density.modules(root)
    code = [line for module in modules for line in density.code_lines(module)]

    def total(measure: Callable[[Module], Sequence[object]]) -> int:
        return sum(len(measure(module)) for module in modules)

    def per_100_code_lines(count: int) -> float:
        return round(100 * count / len(code), 2)

    controllers = [density.num_parameters(module, "Controller") for module in modules if module.name == CONTROLLER]
    return {
        "lines of services/": sum(module.num_lines for module in modules),
        "files of services/": len(modules),
        "words of docs/ and README": _num_words(root),
        "comment lines per 100 code lines": per_100_code_lines(sum(map(density.comment_lines, modules))),
        "characters per code line": round(sum(map(len, code)) / len(code), 1),
        "conditional expressions per 100 code lines": per_100_code_lines(
            sum(density.count(module, ast.IfExp) for module in modules)
        ),
        "comprehensions per 100 code lines": per_100_code_lines(
            sum(density.count(module, *density.COMPREHENSIONS) for module in modules)
        ),
        "numeric constants": total(density.numeric_constants),
        "numeric constants of one bare word": total(density.bare_words),
        "odd phrases in prose": len(prose_hits(root)),
        "odd phrases that a user reads": len(user_visible_hits(root)),
        "assignments of several values": total(density.tuple_assignments),
        "nested conditional expressions": total(density.nested_conditionals),
        "signatures with RunConfig": total(lambda module: density.signatures_with(module, "RunConfig")),
        "parameters of Controller": controllers[0] if controllers else None,
        "functions over 60 lines": sum(len(list(density.long_functions(module.tree))) for module in modules),
        "files over 400 lines": sum(module.num_lines > density.MAX_FILE_LINES for module in modules),
    }


def _num_words(root: Path) -> int:
    """Words of README and docs/, without the generated reference and the notes, which were in docs/ once."""
    docs = root / "docs"
    pages = [root / "README.md", *sorted(docs.rglob("*.md"))]
    read = [page for page in pages if docs / "reference" not in page.parents and page != docs / "lab-notes.md"]
    return sum(len(page.read_text().split()) for page in read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", metavar="ROOT", nargs="?", type=Path, default=Path())
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--list", action="store_true", help="print every odd phrase instead")
    arguments = parser.parse_args()
    if arguments.list:
        for hit in prose_hits(arguments.root) + user_visible_hits(arguments.root):
            print(hit)
        return
    measured = figures(arguments.root)
    if arguments.json:
        print(json.dumps(measured, indent=1))
        return
    width = max(map(len, measured))
    for name, value in measured.items():
        print(f"{name:{width}}  {value}")


if __name__ == "__main__":
    main()
