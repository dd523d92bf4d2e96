"""What a reader walks through from `rollcast fit FILE.csv` to its forecast: `python -m lab.csv_walk
FILE.csv [--json]`.

A stop is a function of this repository, counted when it is entered for the first time. A room is a
file. A return is a stop in a file that the walk had left before. The walk begins when the command
line is called and ends when the law is fitted, that is when a function returns the first
`Forecast`. What runs while a module is imported is not counted.

The walk without the stops inside `rollcast.scaling`, where the law is fitted, is also counted by
itself.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import rollcast
from rollcast.cli.main import app

HOME = Path(str(rollcast.__file__)).parent


class Walk:
    """The stops of one command, in the order in which they are entered."""

    def __init__(self) -> None:
        self.stops: list[tuple[str, str]] = []
        """File, relative to the package, and qualified name of each function."""
        self._seen: set[CodeType] = set()
        self._num_imports = 0
        """Modules whose code is running."""
        self._has_ended = False

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        """What `sys.setprofile` calls."""
        code = frame.f_code
        if code.co_name == "<module>":
            self._num_imports += {"call": 1, "return": -1}.get(event, 0)
        elif event == "return" and _is_forecast(argument):
            self._has_ended = True
        elif event == "call" and not self._num_imports and not self._has_ended:
            self._enter(code)

    def _enter(self, code: CodeType) -> None:
        path = Path(code.co_filename)
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith(
            "<"
        )
        if is_function and code not in self._seen and HOME in path.parents:
            self._seen.add(code)
            self.stops.append((path.relative_to(HOME).as_posix(), code.co_qualname))


def _is_forecast(value: Any) -> bool:
    return type(value).__name__ == "Forecast" and type(value).__module__.startswith(
        "rollcast.scaling"
    )


def figures(stops: list[tuple[str, str]]) -> dict[str, int]:
    """Stops, rooms and returns of a walk."""
    rooms: set[str] = set()
    num_returns = 0
    here = ""
    for room, _ in stops:
        if room != here and room in rooms:
            num_returns += 1
        rooms.add(room)
        here = room
    return {"stops": len(stops), "rooms": len(rooms), "returns": num_returns}


def walk(path: str) -> list[tuple[str, str]]:
    """The stops from the command line to the fitted law of the file."""
    found = Walk()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        sys.setprofile(found.profile)
        try:
            app(["fit", path], standalone_mode=False)
        finally:
            sys.setprofile(None)
    return found.stops


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", metavar="FILE.csv")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    stops = walk(arguments.path)
    answer: dict[str, Any] = {
        **figures(stops),
        "without_scaling": figures([stop for stop in stops if not stop[0].startswith("scaling/")]),
        "stops_by_package": dict(Counter(room.partition("/")[0] for room, _ in stops)),
        "walk": [f"{room} {name}" for room, name in stops],
    }
    if arguments.json:
        print(json.dumps(answer, indent=1))
        return
    for stop in answer.pop("walk"):
        print(stop)
    for name, value in answer.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
