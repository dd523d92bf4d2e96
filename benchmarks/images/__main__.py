"""Builds the images and runs the demo's task from their file systems; results/images.json. As root,
on Debian.

    control, trainer, generator   by buildah from the Dockerfiles: seconds, and bytes of the image's
                                  file system
    the run, the services         tests/chart/test_built_images.py: the chart's pods, each in its
                                  image's file system

Needs buildah. The base is pulled, or made by debootstrap where ROLLCAST_DEBIAN_MIRROR names a
mirror: a machine may reach no registry. What else only the builder's machine needs comes from its
environment as well:

    ROLLCAST_BUILD_ARGUMENTS   for each `buildah bud`, as "--build-arg EXTRA_INDEX_URL=.. --volume
                               /wheels:/wheels:ro"
    ROLLCAST_IMAGES_FOLDER     where images and file systems go (default .cache/images; 40 GB);
                               removed at the end
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from testkit.record import RESULTS, describe_machine, write_result

ROOT = Path(__file__).parents[2]
IMAGES = ("control", "trainer", "generator")
BASE_PACKAGES = "ca-certificates,python3,python3-dev,python3-venv,python3-pip,libstdc++6"
"""Parts of the official image; torch compiles against Python's headers while an engine starts."""
BUILD_SECONDS, STEP_SECONDS, RUN_SECONDS = 3_600, 900, 1_800
RUN = "tests/chart/test_built_images.py"


class Builder:
    """buildah with its storage in one folder: chroot isolation, no daemon,
    no overlay file system.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        places = ["--root", str(folder / "storage"), "--runroot", str(folder / "state")]
        self._command = ["buildah", *places, "--storage-driver", "vfs"]
        self.base = next(
            line.partition("=")[2]
            for line in (ROOT / "Dockerfile.control").read_text().splitlines()
            if line.startswith("ARG PYTHON=")
        )

    def make_base(self) -> None:
        """The base that the Dockerfiles name, or one of the same Debian with Debian's Python."""
        name = f"docker.io/library/python:{self.base}"
        mirror = os.environ.get("ROLLCAST_DEBIAN_MIRROR")
        if mirror is None:
            self._do("pull", name, seconds=STEP_SECONDS)
            return
        root = self.folder / "base"
        release = self.base.rpartition("-")[2]
        _run(
            [
                "debootstrap",
                "--variant=minbase",
                f"--include={BASE_PACKAGES}",
                release,
                str(root),
                mirror,
            ]
        )
        # Debian's slim variants leave these out as well.
        for folder in (
            "var/lib/apt/lists",
            "usr/share/doc",
            "usr/share/man",
            "usr/share/locale",
            "usr/share/info",
        ):
            shutil.rmtree(root / folder, ignore_errors=True)
        (root / "var/lib/apt/lists/partial").mkdir(parents=True)
        for old in (
            *root.glob("var/cache/apt/archives/*.deb"),
            *root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"),
        ):
            old.unlink()
        (root / "usr/bin/python").symlink_to("python3")
        container = self._do("from", "scratch", seconds=STEP_SECONDS)
        self._do("add", "--quiet", container, str(root), "/", seconds=STEP_SECONDS)
        self._do("commit", "--quiet", "--rm", container, name, seconds=STEP_SECONDS)
        shutil.rmtree(root)

    def build(self, image: str, device: str) -> dict[str, Any]:
        """Build one image; seconds, bytes of its file system, and where in it the bytes are."""
        arguments = shlex.split(os.environ.get("ROLLCAST_BUILD_ARGUMENTS", ""))
        if image != "control":
            arguments += ["--build-arg", f"DEVICE={device}"]
        begun = time.monotonic()
        tagged = ["-f", f"Dockerfile.{image}", "-t", f"rollcast/{image}"]
        self._do(
            "bud",
            "--isolation",
            "chroot",
            "--pull-never",
            *tagged,
            *arguments,
            ".",
            seconds=BUILD_SECONDS,
        )
        seconds = time.monotonic() - begun
        root = self._mount(image)
        return {
            "commit": describe_machine()["commit"],
            "seconds": round(seconds, 1),
            "bytes": size(root),
            "system_bytes": size(root) - size(root / "opt"),
            "packages": largest(root),
        }

    def _mount(self, image: str) -> Path:
        """The image's file system and environment, under `folder`/roots, for the run."""
        container = self._do("from", "--pull-never", f"rollcast/{image}", seconds=STEP_SECONDS)
        place = Path(self._do("mount", container, seconds=STEP_SECONDS))
        config = json.loads(
            self._do("inspect", "--type", "image", f"rollcast/{image}", seconds=STEP_SECONDS)
        )
        roots = self.folder / "roots"
        roots.mkdir(exist_ok=True)
        (roots / image).symlink_to(place)
        (roots / f"{image}.json").write_text(json.dumps(config["OCIv1"]["config"]))
        return place

    def _do(self, *arguments: str, seconds: float) -> str:
        return _run([*self._command, *arguments], seconds)


def kept(result: str) -> dict[str, Any]:
    """Images of the last result: one machine may have room for one image at a time."""
    path = RESULTS / f"{result}.json"
    return dict(json.loads(path.read_text())["figures"]["images"]) if path.exists() else {}


def _run(command: list[str], seconds: float = STEP_SECONDS) -> str:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=seconds, check=False, cwd=ROOT
    )
    if done.returncode != 0:
        print(done.stdout[-3_000:], file=sys.stderr)
        sys.exit(f"{shlex.join(command[:1])} ended with {done.returncode}: {shlex.join(command)}")
    return done.stdout.strip()


def size(folder: Path) -> int:
    """Bytes of the files below, a file with several names counted once."""
    return int(_run(["du", "--summarize", "--bytes", str(folder.resolve())]).split()[0])


def largest(root: Path) -> dict[str, int]:
    """Bytes of the ten largest packages, their bytecode included."""
    (packages,) = root.resolve().glob("opt/rollcast/lib/python3*/site-packages")
    sizes = {path.name: size(path) for path in packages.iterdir() if path.is_dir()}
    return dict(sorted(sizes.items(), key=lambda item: -item[1])[:10])


def from_images(folder: Path, tests: str) -> dict[str, Any]:
    """The chart's pods in these file systems: those of the tests whose names hold `tests`."""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", RUN, "-k", tests],
        env=os.environ | {"ROLLCAST_IMAGE_ROOTS": str(folder / "roots")},
        stdout=subprocess.PIPE,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
        cwd=ROOT,
    )
    print(done.stdout[-3_000:])
    return {
        "finished": done.returncode == 0 and "skipped" not in done.stdout,
        "seconds": round(time.monotonic() - begun, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Builds the images and runs the demo's task from them."
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="cuda: built, not run"
    )
    parser.add_argument(
        "--only", choices=IMAGES, nargs="+", default=IMAGES, help="images; all of them are run"
    )
    given = parser.parse_args()
    needed = ["buildah"] + ["debootstrap"] * ("ROLLCAST_DEBIAN_MIRROR" in os.environ)
    if missing := [program for program in needed if shutil.which(program) is None]:
        sys.exit(f"{', '.join(missing)} is not installed: apt-get install {' '.join(missing)}")
    if os.geteuid() != 0:
        sys.exit("images are built and their file systems mounted as root: run it with sudo")
    folder = Path(os.environ.get("ROLLCAST_IMAGES_FOLDER", ROOT / ".cache" / "images")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        builder = Builder(folder)
        builder.make_base()
        result = "images" if given.device == "cpu" else "images_cuda"
        figures: dict[str, Any] = {
            "device": given.device,
            "base": builder.base,
            "images": kept(result),
        }
        figures["own_base"] = "ROLLCAST_DEBIAN_MIRROR" in os.environ
        for image in given.only:
            figures["images"][image] = found = builder.build(image, given.device)
            print(
                f"{image:10}{found['bytes'] / 1e9:6.2f} GB, of which "
                f"{found['system_bytes'] / 1e9:.2f} GB are Debian's"
            )
            print(
                f"{'':10}{found['seconds']:6.0f} s; "
                + ", ".join(f"{n} {b / 1e6:.0f} MB" for n, b in found["packages"].items())
            )
        whole = given.device == "cpu" and set(given.only) == set(IMAGES)
        if whole:
            # From install to a finished run; then what the demo does not start.
            figures["run"] = from_images(folder, "demos_task")
            figures["services"] = from_images(folder, "control_images")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    path = write_result(result, figures)
    print(f"written to {path}")
    return 0 if not whole or all(figures[part]["finished"] for part in ("run", "services")) else 1


if __name__ == "__main__":
    sys.exit(main())
