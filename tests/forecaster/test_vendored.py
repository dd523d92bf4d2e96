"""The charting library is the published one, unchanged, and comes with its licence."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from pathlib import Path

from testkit.forecaster.recorded_run import run_file
from testkit.forecaster.service_process import running
from testkit.forked_programs import ForkedPrograms


def test_vendored_files_are_as_published_and_served_with_their_licence(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    folder = resources.files("rollcast.forecaster").joinpath("page", "vendor", "uplot")
    sums = re.findall(
        r"^    ([0-9a-f]{64})  (\S+)$", folder.joinpath("README.md").read_text(), re.MULTILINE
    )
    noted = {name: digest for digest, name in sums}
    assert noted.keys() == {"uPlot.iife.min.js", "uPlot.min.css", "LICENSE"}
    with running(run_file(tmp_path, {"kind": "scrape"}), tmp_path, services) as service:
        for name, digest in noted.items():
            assert hashlib.sha256(folder.joinpath(name).read_bytes()).hexdigest() == digest
            assert (
                service.client.get(f"/vendor/uplot/{name}").content
                == folder.joinpath(name).read_bytes()
            )
        assert "MIT" in service.client.get("/vendor/uplot/LICENSE").text
        page = service.client.get("/").text
        assert all(f"vendor/uplot/{name}" in page for name in noted)
