"""Arguments of a service changed, so the chart has another appVersion: nodes then fetch images that
know them.

Images are kept by their tag, which is the appVersion. A new chart with images of the code before
would end a run with exit code 2, "unrecognized arguments".
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from tests.chart.rendering import CHART, pods, render
from tests.chart.value_sets import VALUE_SETS

KNOWN = Path(__file__).with_name("arguments.json")
"""appVersion -> container -> the names of the arguments that charts of this version pass to it."""


def passed() -> dict[str, list[str]]:
    """Container -> names of commands and options that any set of values passes to it; their values
    may change.
    """
    found: dict[str, set[str]] = {}
    for name in sorted(VALUE_SETS):
        for pod in pods(render(VALUE_SETS[name])):
            for container in pod.containers:
                if not re.search(r"(^|/)rollcast/", container["image"]) or container["name"] in (
                    "test",
                    "image",
                ):
                    continue
                words = [*container["command"], *container.get("args", [])]
                names = {
                    word.partition("=")[0]
                    for word in words
                    if re.match(r"--?[a-z]|[a-z._]+$", word)
                }
                found.setdefault(container["name"], set()).update(names)
    return {container: sorted(names) for container, names in sorted(found.items())}


def test_other_arguments_have_another_version_of_the_code() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    known = json.loads(KNOWN.read_text())
    assert version in known, (
        f"{version} is new: write its arguments down, python -m tests.chart.test_arguments"
    )
    assert passed() == known[version], (
        f"arguments changed: raise appVersion {version} in Chart.yaml, and every tag and version "
        "that names it"
    )
    assert known["0.1.0"] != known[version]


if __name__ == "__main__":
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    KNOWN.write_text(
        json.dumps(json.loads(KNOWN.read_text()) | {chart["appVersion"]: passed()}, indent=1) + "\n"
    )
