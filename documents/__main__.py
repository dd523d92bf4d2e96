"""Writes docs/reference/*.md from the code, the table of clients in docs/episodes.md, the tables of
docs/performance.md, and the table of `trainer.compile: auto`: `python -m documents`.

The tests notice when it was forgotten.
"""

from __future__ import annotations

from pathlib import Path

from documents.clients import with_clients_table
from documents.commands import commands_page
from documents.compilation import compilation_table
from documents.http_api import http_page
from documents.metrics import metrics_page
from documents.other_names import other_names_page
from documents.performance import PAGE as PERFORMANCE
from documents.performance import with_performance_tables
from documents.python_api import python_page
from documents.settings import settings_page

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
EPISODES = FOLDER.parent / "episodes.md"
COMPILATION = ROOT / "services" / "rollcast" / "trainer" / "learner" / "compilation.json"
MARK = "\n<!-- Written by `python -m documents`. -->\n"


def generated() -> dict[str, str]:
    """Text by the name of the file in docs/reference."""
    pages = {
        "settings.md": settings_page(),
        "other-names.md": other_names_page(),
        "metrics.md": metrics_page(),
        "commands.md": commands_page(),
        "http.md": http_page(),
        "python.md": python_page(),
    }
    return {name: text + MARK for name, text in pages.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in generated().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    EPISODES.write_text(with_clients_table(EPISODES.read_text()), encoding="utf-8")
    PERFORMANCE.write_text(with_performance_tables(PERFORMANCE.read_text()), encoding="utf-8")
    COMPILATION.write_text(compilation_table(), encoding="utf-8")
