"""Writes recipes/NAME.yaml: every shipped recipe as values, to be given after a profile (`helm
install -f ... -f ...`).

    python helm/recipes.py [--check]

Helm merges maps: what a profile sets in `config.recipe` (values-8xh100.yaml its batch, which is
ScaleRL's) stays unless the recipe sets it too.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

HERE = Path(__file__).parent
SOURCE = HERE.parent / "configs" / "recipes"
TARGET = HERE / "recipes"


def recipe_values() -> dict[str, str]:
    """File name -> text."""
    texts = {}
    for path in sorted(SOURCE.rglob("*.yaml")):
        source = path.read_text(encoding="utf-8")
        data = yaml.safe_load(source)
        length = {"max_length": data["model"]["max_length"]}
        values = {"config": {"run": data["run"], "model": length, "recipe": data["recipe"]}}
        title = source.splitlines()[0] if source.startswith("#") else f"# {data['run']}"
        origin = path.relative_to(HERE.parent).as_posix()
        texts[path.name] = (
            f"{title}\n# Written by helm/recipes.py from "
            f"{origin}.\n{yaml.safe_dump(values, sort_keys=False)}"
        )
    return texts


def main() -> int:
    texts = recipe_values()
    there = {path.name for path in TARGET.glob("*.yaml")}
    if "--check" in sys.argv:
        stale = [
            name
            for name, text in texts.items()
            if name not in there or (TARGET / name).read_text() != text
        ]
        for name in sorted({*stale, *(there - texts.keys())}):
            print(f"helm/recipes/{name} is out of date: run python helm/recipes.py")
        return 1 if stale or there - texts.keys() else 0
    TARGET.mkdir(exist_ok=True)
    for name in there - texts.keys():
        (TARGET / name).unlink()
    for name, text in texts.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
