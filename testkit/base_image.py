"""The image that examples/swe builds on: from its Dockerfile, or by debootstrap on a machine
without a registry.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testkit.containers import runtime

DOCKERFILE = Path(__file__).parents[1] / "examples" / "swe" / "base"
BUILD_SECONDS = 1_800.0


def make_base_image(image: str, packages: Sequence[str]) -> None:
    """Build it if it is missing. packages: of Debian, for debootstrap.

    ROLLCAST_DEBIAN_MIRROR names a mirror for a machine without a registry.
    Raises CalledProcessError.
    """
    chosen = runtime()
    podman = ["podman", *(("--runtime", chosen) if chosen else ())]
    if subprocess.run([*podman, "image", "exists", image], check=False).returncode == 0:
        return
    mirror = os.environ.get("ROLLCAST_DEBIAN_MIRROR")
    if mirror is None:
        subprocess.run(
            [*podman, "build", "--tag", image, str(DOCKERFILE)], check=True, timeout=BUILD_SECONDS
        )
        return
    with tempfile.TemporaryDirectory(prefix="base-image-") as folder:
        subprocess.run(
            [
                *("debootstrap", "--variant=minbase", f"--include={','.join(packages)}"),
                *("bookworm", folder, mirror),
            ],
            check=True,
            timeout=BUILD_SECONDS,
        )
        with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run(
                [*podman, "import", "-", image], stdin=tar.stdout, check=True, timeout=BUILD_SECONDS
            )
