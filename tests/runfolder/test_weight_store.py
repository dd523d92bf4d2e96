"""A store of weights that cannot be used is one sentence, at the start."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rollcast.config.errors import UserError
from rollcast.connections.object_files import ObjectFolder
from rollcast.runfolder.weight_store import open_weight_store
from testkit.small_disk import fill, small_disk


def open_at(folder: Path, location: str) -> ObjectFolder:
    return open_weight_store(folder / "run", location, probe="probe-0")


def test_nothing_is_left_by_the_probe(tmp_path: Path) -> None:
    folder = open_at(tmp_path, f"{tmp_path}/store")
    assert folder.names() == []
    assert Path(folder.location).is_dir()


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("nothing://bucket/weights", "Protocol not known: nothing"),
        pytest.param(
            "s3://bucket/weights",
            "Install s3fs to access S3",
            marks=pytest.mark.skipif(find_spec("s3fs") is not None, reason="s3fs is installed"),
        ),
        ("http://127.0.0.1/weights", "its protocol cannot write"),
        ("FOLDER/taken", "Not a directory|File exists"),
    ],
)
def test_a_wrong_location_is_named(tmp_path: Path, location: str, reason: str) -> None:
    (tmp_path / "taken").touch()
    location = location.replace("FOLDER", str(tmp_path))
    with pytest.raises(
        UserError, match=rf"^weights\.store\.location = .*: cannot be used \(({reason})\); give a f"
    ):
        open_at(tmp_path, location)


class LimitedMemory(MemoryFileSystem):  # type: ignore[misc]
    """Storage whose credentials lack the right to `denied`."""

    protocol = "limited"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    denied = ""

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        if self.denied == "ls":
            raise PermissionError("Access Denied")
        return super().ls(path, detail, **options)

    def rm_file(self, path: str) -> None:
        if self.denied == "rm_file":
            raise PermissionError("Access Denied")
        self._rm(path)


@pytest.mark.parametrize("denied", ["ls", "rm_file"])
def test_a_missing_right_is_known_before_a_version_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: str
) -> None:
    fsspec.register_implementation("limited", LimitedMemory, clobber=True)
    monkeypatch.setattr(LimitedMemory, "denied", denied)
    with pytest.raises(UserError, match=r"\(Access Denied\); .* write, list and remove objects"):
        open_at(tmp_path, "limited://bucket/weights")
    monkeypatch.setattr(LimitedMemory, "denied", "")
    assert open_at(tmp_path, "limited://bucket/weights").names() == []


def test_a_full_disk_is_no_mistake(tmp_path: Path) -> None:
    """It may be freed: writing tries again."""
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        fill(disk, but_bytes=0)
        assert open_at(tmp_path, str(disk)).names() == []
