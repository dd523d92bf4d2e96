"""A table of how plainly a checkout is written.

    python -m lab.plainness [--since REVISION] [--list] [ROOT]

--since measures that revision too, and writes both columns to lab/results/plainness.json. --list
prints every odd phrase.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.plainness import density, identifiers
from lab.plainness.density import Module
from lab.plainness.idiom import prose_hits
from lab.plainness.literals import user_visible_hits
from testkit.record import LAB_RESULTS, write_result

PATIENCE_SECONDS = 120
CONTROLLER = "rollcast/trainer/control/controller.py"


def figures(root: Path) -> dict[str, float | None]:
    """Every measure of a checkout, by the words that the table shows."""
    modules = density.modules(root)
    code = [line for module in modules for line in density.code_lines(module)]

    def total(measure: Callable[[Module], Sequence[object]]) -> int:
        return sum(len(measure(module)) for module in modules)

    def per_100_code_lines(count: int) -> float:
        return round(100 * count / len(code), 2)

    def bare_per_cent(names: Callable[[Module], Sequence[str]]) -> float:
        every = [name for module in modules for name in names(module)]
        return round(100 * sum(map(identifiers.is_bare, every)) / len(every), 2)

    controllers = [
        density.num_parameters(module, "Controller")
        for module in modules
        if module.name == CONTROLLER
    ]
    return {
        "lines of services/": sum(module.num_lines for module in modules),
        "files of services/": len(modules),
        "words of docs/ and README": _num_words(root),
        "comment lines per 100 code lines": per_100_code_lines(
            sum(map(density.comment_lines, modules))
        ),
        "characters per code line": round(sum(map(len, code)) / len(code), 1),
        "conditional expressions per 100 code lines": per_100_code_lines(
            sum(density.count(module, ast.IfExp) for module in modules)
        ),
        "comprehensions per 100 code lines": per_100_code_lines(
            sum(density.count(module, *density.COMPREHENSIONS) for module in modules)
        ),
        "numeric constants": total(density.numeric_constants),
        "numeric class attributes": total(density.numeric_class_attributes),
        "numeric constants of one bare word": total(density.bare_words),
        "bare variables, per cent": bare_per_cent(identifiers.variables),
        "bare parameters, per cent": bare_per_cent(identifiers.parameters),
        "bare attributes, per cent": bare_per_cent(identifiers.attributes),
        "functions named by a participle": total(identifiers.participles),
        "functions with of_ or _of": total(identifiers.prepositions),
        "docstrings that begin with a pronoun": total(identifiers.pronoun_docstrings),
        "docstrings that begin with What": total(identifiers.what_docstrings),
        "odd phrases in prose": len(prose_hits(root)),
        "odd phrases that a user reads": len(user_visible_hits(root)),
        "assignments of several values": total(density.tuple_assignments),
        "nested conditional expressions": total(density.nested_conditionals),
        "signatures with RunConfig": total(
            lambda module: density.signatures_with(module, "RunConfig")
        ),
        "parameters of Controller": controllers[0] if controllers else None,
        "functions over 60 lines": sum(
            len(list(density.long_functions(module.tree))) for module in modules
        ),
        "files over 400 lines": sum(
            module.num_lines > density.MAX_FILE_LINES for module in modules
        ),
    }


def _num_words(root: Path) -> int:
    """Words of README and docs/, without the generated reference and the notes, which were in docs/
    once.
    """
    docs = root / "docs"
    pages = [root / "README.md", *sorted(docs.rglob("*.md"))]
    read = [
        page
        for page in pages
        if docs / "reference" not in page.parents and page != docs / "lab-notes.md"
    ]
    return sum(len(page.read_text().split()) for page in read)


def at_revision(revision: str) -> dict[str, float | None]:
    """Every measure of an earlier revision."""
    archive = subprocess.run(
        ["git", "archive", revision], capture_output=True, timeout=PATIENCE_SECONDS, check=True
    )
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
            packed.extractall(folder, filter="data")
        return figures(Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", metavar="ROOT", nargs="?", type=Path, default=Path())
    parser.add_argument(
        "--since", metavar="REVISION", help="compare with this revision and write the result"
    )
    parser.add_argument("--list", action="store_true", help="print every odd phrase instead")
    arguments = parser.parse_args()
    if arguments.list:
        for hit in prose_hits(arguments.root) + user_visible_hits(arguments.root):
            print(hit)
        return
    root = arguments.root.resolve()
    columns = {"now": figures(root)}
    if arguments.since:
        columns = {"before": at_revision(arguments.since), **columns}
    width = max(map(len, columns["now"]))
    for name in columns["now"]:
        print(f"{name:{width}}", *(f"{column[name]!s:>8}" for column in columns.values()))
    if arguments.since:
        print(write_result("plainness", {"since": arguments.since, **columns}, LAB_RESULTS))


if __name__ == "__main__":
    main()
