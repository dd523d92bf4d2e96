"""The console of TRL and transformers: `{'loss': 0.01, 'reward': 0.43, .., 'epoch': 0.12}` for each entry of the log.

It is Python's way of writing, not JSON; transformers 5 puts the numbers in quotes. Progress bars stand between lines.
"""

import re
from collections.abc import Iterator

from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.sheet import Sheet

NAME = "console log of TRL or transformers"
_LINE = re.compile(r"\{'[^'\n{}]{1,300}': [^{}\n]*\}")
_EPOCH = re.compile(r"'epoch': '?[\d.]")
_ITEM = re.compile(r"'([^']{1,300})': (?:np\.\w+\(|tensor\()?'?(-?\d+(?:\.\d*)?(?:e[-+]?\d+)?)'?\)?(?=[,}])")


def recognises(log: LogFile) -> bool:
    return "'epoch': " in log.text and next(_entries(log.text), None) is not None


def read(log: LogFile) -> Sheet:
    """One row for each entry; it is read as text, never evaluated."""
    return Sheet.of_rows(NAME, (dict(_ITEM.findall(entry)) for entry in _entries(log.text)))


def _entries(text: str) -> Iterator[str]:
    """The mappings with an epoch."""
    return (found[0] for found in _LINE.finditer(text) if _EPOCH.search(found[0]))
