"""The examples of CONTRIBUTING.md: title -> its diff and its commands."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
_EXAMPLE = re.compile(
    (
        r"^### "
        r"(?P<title>[^\n]+)\n(?:(?!^###).)*?^```diff\n(?P<diff>.*?)^```\n+^```sh\n(?P<commands>.*?)^```"
    ),
    re.MULTILINE | re.DOTALL,
)
EXAMPLES = {match["title"]: match for match in _EXAMPLE.finditer(PAGE)}
