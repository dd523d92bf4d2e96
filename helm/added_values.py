"""Writes rollcast/files/added-values.yaml: those of the chart's defaults that some earlier chart
did not have.

    python helm/added_values.py [--check]

`helm upgrade --reuse-values` takes the defaults of the release's chart in the place of the new
chart's. templates/_helpers.tpl adds what is missing from this file. earlier-values/ has the
defaults of every earlier chart. Whoever changes the keys of values.yaml copies the former one there
and raises `defaultsVersion`; tests/chart/test_earlier_values.py notices.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
VALUES = HERE / "rollcast" / "values.yaml"
ADDED = HERE / "rollcast" / "files" / "added-values.yaml"
EARLIER = HERE / "earlier-values"
Values = dict[str, Any]


def read(path: Path) -> Values:
    found: Values = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def earlier() -> list[Values]:
    """Defaults of every earlier chart, the oldest first."""
    return [read(path) for path in sorted(EARLIER.glob("*.yaml"), key=lambda path: int(path.stem))]


def added(now: Values, before: list[Values]) -> Values:
    """What `now` has and at least one of `before` has not, at every depth."""
    found: Values = {}
    for name, value in now.items():
        if not all(name in values for values in before):
            found[name] = value
        elif isinstance(value, dict):
            deeper = [values[name] for values in before if isinstance(values[name], dict)]
            if more := added(value, deeper):
                found[name] = more
    return found


def text() -> str:
    now = read(VALUES)
    content = {"defaultsVersion": now["defaultsVersion"], "values": added(now, earlier())}
    head = "# Written by helm/added_values.py: defaults that an earlier chart did not have.\n"
    return head + yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120)


def main() -> int:
    if "--check" in sys.argv:
        stale = not ADDED.exists() or ADDED.read_text(encoding="utf-8") != text()
        if stale:
            print(f"{ADDED} is out of date: run python helm/added_values.py")
        return int(stale)
    ADDED.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
