"""Every notebook of the documents runs from top to bottom, and was run before it was committed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As plain Python, without the lines that only a notebook knows."""
    matplotlib = pytest.importorskip(
        "matplotlib", reason="matplotlib is not installed: the notebook draws with it"
    )
    matplotlib.use("Agg")
    names: dict[str, Any] = {}
    for cell in cells(path):
        capsys.readouterr()
        plain = "".join(line for line in cell["source"] if not line.startswith("%"))
        exec(compile(plain, path.name, "exec"), names)
    assert "held by the 90 % interval" in capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_was_run_without_an_error(path: Path) -> None:
    assert [cell["execution_count"] for cell in cells(path)] == list(range(1, len(cells(path)) + 1))
    kinds = {output["output_type"] for cell in cells(path) for output in cell["outputs"]}
    assert kinds <= {"execute_result", "display_data", "stream"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_make_docs_runs_it(path: Path) -> None:
    for name in ("nbclient", "ipykernel"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(
                f"{name} is not installed: pip install -r requirements/docs.txt, or make docs"
            )
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
