"""Checkpoints behind a URL: fsspec's own memory, and a real S3 server where s3fs and moto are
installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from rollcast.config.errors import UserError
from rollcast.local.ports import free_port
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.learner.checkpoint import checkpoints, storage_at
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.wire.version import PolicyVersion
from testkit.object_storage import needs_s3, s3_server
from tests.trainer.learner_state import state
from tests.trainer.tiny_models import make_config, make_sequences, newest_whole


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    with s3_server() as bucket:
        yield bucket


@pytest.fixture(params=["memory", pytest.param("s3", marks=needs_s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of this test alone."""
    root = "memory://bucket" if request.param == "memory" else request.getfixturevalue("s3")
    return f"{root}/{tmp_path.name}"


def group_of(
    ranks: Ranks, model: Path, folder: Path, place: str, **trainer: object
) -> LearnerGroup:
    return LearnerGroup.build(
        make_config(model, folder, trainer={"checkpoints": place, **trainer}), ranks
    )


def spoil(checkpoint: str, fault: str) -> None:
    """Take away, halve or change one of its objects."""
    files: Any
    files, path = fsspec.core.url_to_fs(checkpoint)
    name = f"{path}/{ {'metadata': '.metadata', 'tensors': '__0_0.distcp'}[fault.split()[1]] }"
    data = bytearray(files.cat_file(name))
    if fault.startswith("no"):
        files.rm_file(name)
    elif fault.startswith("cut"):
        files.pipe_file(name, bytes(data[: len(data) // 2]))
    else:
        data[len(data) // 2] ^= 1
        files.pipe_file(name, bytes(data))


def test_what_was_saved_is_restored_bit_for_bit(
    ranks: Ranks, untied_model: Path, tmp_path: Path, place: str
) -> None:
    group = group_of(ranks, untied_model, tmp_path, place)
    group.update(make_sequences(0))
    expected = state(group)
    written = group.save(PolicyVersion(1, 1), {"next": 3}).result()
    assert written == f"{place}/test/1.1"
    assert group.save(PolicyVersion(1, 1), {"next": 4}).result() == written
    group.update(make_sequences(1))
    assert group.restore(written) == {"next": 4}
    assert all(
        torch.equal(found, wanted) for found, wanted in zip(state(group), expected, strict=True)
    )
    assert not (tmp_path / "test").exists()


@pytest.mark.parametrize(
    "fault",
    [
        "flipped tensors",
        "cut tensors",
        "no tensors",
        "cut metadata",
        "flipped metadata",
        "no metadata",
    ],
)
def test_a_damaged_one_is_passed_over_for_the_one_before(
    ranks: Ranks,
    untied_model: Path,
    tmp_path: Path,
    place: str,
    fault: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    group = group_of(ranks, untied_model, tmp_path, place)
    progress = [Progress(step=step) for step in (1, 2)]
    paths = [
        str(group.save(PolicyVersion(1, one.step), one.as_json()).result()) for one in progress
    ]
    spoil(paths[1], fault)
    assert newest_whole(group.config, group) == progress[0]
    assert [
        paths[1] in line for line in capsys.readouterr().out.splitlines() if "damaged" in line
    ] == [True]


def test_what_was_never_completed_is_no_checkpoint_and_makes_room_for_the_next(
    ranks: Ranks, untied_model: Path, tmp_path: Path, place: str
) -> None:
    group = group_of(ranks, untied_model, tmp_path, place)
    group.save(PolicyVersion(1, 9), {}).result()
    files: Any
    files, path = fsspec.core.url_to_fs(f"{place}/test")
    files.pipe_file(f"{path}/1.10/__0_0.distcp", b"torn")
    assert checkpoints(f"{place}/test") == [f"{place}/test/1.9"]
    group.save(PolicyVersion(2, 10), {}).result()
    files.invalidate_cache()
    assert not files.exists(f"{path}/1.10/__0_0.distcp")


def test_the_newest_are_kept(ranks: Ranks, untied_model: Path, tmp_path: Path, place: str) -> None:
    group = group_of(ranks, untied_model, tmp_path, place, keep_checkpoints=2)
    for step in (9, 10, 11):
        group.save(PolicyVersion(1, step), {}).result()
    assert checkpoints(f"{place}/test") == [f"{place}/test/1.11", f"{place}/test/1.10"]
    files: Any
    files, path = fsspec.core.url_to_fs(f"{place}/test")
    files.invalidate_cache()
    assert {name.rpartition("/")[2] for name in files.ls(path, detail=False)} == {"1.10", "1.11"}


def test_what_a_storage_refuses_to_remove_or_to_tell_is_neither_gutted_nor_taken_for_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = storage_at("memory://refusing/test")
    files: Any = fsspec.filesystem("memory")
    files.pipe_file("/refusing/test/1.1/__0_0.distcp", b"tensors")
    storage.complete("1.1", "{}")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(5, "not now")

    with monkeypatch.context() as patch:
        patch.setattr(type(files), "rm_file", refuse)
        storage.remove("1.1")
    assert storage.names() == ["1.1"]
    assert files.exists("/refusing/test/1.1/__0_0.distcp")
    with monkeypatch.context() as patch:
        patch.setattr(type(files), "info", refuse)
        with pytest.raises(OSError, match="not now"):
            storage.begin("1.2", 0)
    assert storage.names() == ["1.1"]
    storage.remove("1.1")
    assert storage.names() == []


def test_a_protocol_without_its_library_is_one_sentence() -> None:
    with pytest.raises(
        UserError,
        match=r"^checkpoints at gss://b/test cannot be reached \(.*gss.*\); give a folder",
    ) as e:
        storage_at("gss://b/test")
    assert "\n" not in str(e.value)


@needs_s3
def test_a_bucket_that_is_not_there_is_one_sentence(
    ranks: Ranks, untied_model: Path, tmp_path: Path, s3: str
) -> None:
    group = group_of(ranks, untied_model, tmp_path, "s3://nowhere")
    with pytest.raises(
        UserError, match=r"^checkpoint folder s3://nowhere/test cannot be written \(.*\); fix the"
    ) as e:
        group.save(PolicyVersion(1, 1), {}).result()
    assert "\n" not in str(e.value)
    assert e.value.exit_code == 2
    assert checkpoints("s3://nowhere") == []


@needs_s3
def test_a_server_that_is_away_may_come_back(
    ranks: Ranks, untied_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port('127.0.0.1')}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    fsspec.filesystem("s3").clear_instance_cache()
    with pytest.raises(
        UserError, match=r"^checkpoints at s3://b/test cannot be listed \(.*\); fix"
    ) as error:
        checkpoints("s3://b/test")
    assert error.value.exit_code == 1
    fsspec.filesystem("s3").clear_instance_cache()
