"""Every wrong run file of the table reaches the check as it is: tests/config says what `config
check` answers to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rollcast.config.yaml_loader import load_yaml
from tests.chart.rendering import CPU, chart_of, one, render
from tests.config.wrong_run_files import NAMES, RIGHT, WRONG, changed

LEFT_TO_USERS = {
    name: entry["change"]
    for name, entry in zip(NAMES, WRONG, strict=True)
    if not entry.get("set_by_the_chart", False)
}
"""The chart itself refuses a value for a setting that it sets (test_refusals.py)."""
SET_BY_THE_CHART = ("model", "path")


def leaves(settings: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not (isinstance(settings, dict) and settings):
        yield path
        return
    for key, value in settings.items():
        yield from leaves(value, (*path, key))


def value_at(settings: Any, path: tuple[str, ...]) -> Any:
    """The value there; KeyError if there is none."""
    for key in path:
        if not isinstance(settings, dict):
            raise KeyError(path)
        settings = settings[key]
    return settings


def has(settings: Any, change: Any) -> bool:
    """Whether all that a change sets is there."""
    wanted = changed(RIGHT, change)
    try:
        return all(value_at(settings, path) == value_at(wanted, path) for path in leaves(change))
    except KeyError:
        return False


def run_files() -> list[tuple[dict[str, Any], list[str]]]:
    """Few run files that have every wrong value, each with the names of its mistakes."""
    files: list[tuple[dict[str, Any], list[str]]] = []
    for name, change in LEFT_TO_USERS.items():
        for index, (settings, names) in enumerate(files):
            both = changed(settings, change)
            if all(has(both, LEFT_TO_USERS[known]) for known in (*names, name)):
                files[index] = (both, [*names, name])
                break
        else:
            files.append((changed(RIGHT, change), [name]))
    return files


def is_same(rendered: Any, wanted: Any) -> bool:
    """Equal as settings: YAML 1.1 reads 1e-05, which has no dot, as a text, and the settings make a
    number of it.
    """
    if isinstance(wanted, dict) and isinstance(rendered, dict):
        return rendered.keys() == wanted.keys() and all(
            is_same(rendered[key], wanted[key]) for key in wanted
        )
    if isinstance(wanted, list) and isinstance(rendered, list):
        return len(rendered) == len(wanted) and all(map(is_same, rendered, wanted))
    return bool(rendered == wanted) or (isinstance(wanted, float) and float(rendered) == wanted)


def test_every_wrong_value_reaches_the_check_as_it_is(tmp_path: Path) -> None:
    hook_alone = chart_of(tmp_path, "check.yaml", "validate.yaml")
    files = run_files()
    assert sorted(name for _, names in files for name in names) == sorted(LEFT_TO_USERS)
    for settings, names in files:
        text = one(render(CPU | {"config": settings}, path=hook_alone), "ConfigMap", "-check")[
            "data"
        ]["run.yaml"]
        rendered = load_yaml(text, "run.yaml")
        for name in names:
            for path in leaves(LEFT_TO_USERS[name]):
                if path != SET_BY_THE_CHART:
                    assert is_same(value_at(rendered, path), value_at(settings, path)), (name, path)
