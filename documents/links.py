"""Links of the documents and their targets. Links to the web are not checked."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

LINK = re.compile(r"(?<!`)(?P<image>!?)\[(?P<text>[^\]\n]*)\]\((?P<target>[^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)?$", re.MULTILINE)
_BLOCK = re.compile(
    r"^(?P<fence>```+).*?^(?P=fence)$|^(?: {4}|\t)(?! *(?:- |\|)).*$", re.MULTILINE | re.DOTALL
)
_FENCED = re.compile(r"^(?P<fence>```+).*?^(?P=fence)$", re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    """Without blocks of code."""
    return _BLOCK.sub("", _FENCED.sub("", text))


def dead_links(page: Path) -> Iterator[str]:
    """Targets in the repository that are not there, and anchors that their page does not have."""
    for link in LINK.finditer(prose(page.read_text(encoding="utf-8"))):
        target = link["target"]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        to = (page.parent / path).resolve() if path else page
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            yield target


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site and GitHub make them."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return {slug(heading) for heading in _HEADING.findall(text)}


def slug(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    plain = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
