"""What lies in a run's folder has its name in one place."""

from __future__ import annotations

import ast
from pathlib import Path

from rollcast.runfolder import files

SERVICES = Path(files.__file__).parents[1]
NAMES = {value for name, value in vars(files).items() if name.isupper() and "." in value[1:]}


def test_no_other_module_spells_a_file_of_the_run_folder() -> None:
    assert len(NAMES) > 14
    # The files of other programs have names of their own; one of them is the same.
    exempt = (Path(files.__file__), SERVICES / "curves/formats/known_files.py")
    texts = {
        path: path.read_text() for path in sorted(SERVICES.rglob("*.py")) if path not in exempt
    }
    spelt = [
        f"{path.relative_to(SERVICES)}, line {node.lineno}: {node.value!r}"
        for path, text in texts.items()
        if any(name in text for name in NAMES)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in NAMES
    ]
    assert spelt == []
