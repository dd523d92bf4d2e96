"""Runs every notebook of this folder from top to bottom, and writes what its cells give into it:
`make docs`.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient


def main() -> None:
    for path in sorted(Path(__file__).parent.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        # Without times, so that a second run changes nothing.
        NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False).execute()
        notebook.metadata.pop("language_info", None)
        nbformat.write(notebook, path)
        print(path)


if __name__ == "__main__":
    main()
