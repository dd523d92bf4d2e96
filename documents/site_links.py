"""A hook of MkDocs: links from docs/ to the rest of the repository, in a site that holds docs/
alone.

A link to a file outside of docs/ becomes the file's path, and ends the build if the file is
missing. Lists that are indented for GitHub are indented for Python's Markdown.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # MkDocs loads a hook by its path

from documents.links import LINK

DOCS = Path(__file__).parents[1] / "docs"
_THREE_SPACES = re.compile(r"^   (?=\S)", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """MkDocs calls it for each page."""
    folder = (DOCS / page.file.src_uri).parent
    return _THREE_SPACES.sub("    ", LINK.sub(lambda link: _inside(link, folder), markdown))


def _inside(link: re.Match[str], folder: Path) -> str:
    path, _, _ = link["target"].partition("#")
    if re.match(r"[a-z]+:", link["target"]) or not path:
        return link[0]
    target = (folder / path).resolve()
    if target.is_relative_to(DOCS) and target.suffix != ".ipynb":
        return link[0]
    if not target.exists():
        raise FileNotFoundError(
            f"{folder}: the link {link['target']} leads nowhere; fix or remove it"
        )
    place = target.relative_to(DOCS.parent)
    return f"{link['text']} (`{place}`)" if link["text"] != str(place) else f"`{place}`"
