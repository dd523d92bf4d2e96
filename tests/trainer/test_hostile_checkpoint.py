"""Checkpoints that were changed, or made to harm: no code of theirs runs, and each is read or is
one sentence.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, MetadataIndex

from rollcast.config.errors import UserError
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.wire.version import PolicyVersion
from tests.trainer.learner_state import state
from tests.trainer.tiny_models import make_config, newest_whole

NEST = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def group(
    ranks: Ranks, untied_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> LearnerGroup:
    """Of all tests: what is refused changes nothing of it, and none makes an update."""
    return LearnerGroup.build(make_config(untied_model, tmp_path_factory.mktemp("hostile")), ranks)


@pytest.fixture(scope="module")
def whole(group: LearnerGroup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kept where the group does not remove old ones."""
    return shutil.copytree(saved(group), tmp_path_factory.mktemp("whole") / "1.1")


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """A checkpoint of this test alone."""
    return shutil.copytree(whole, tmp_path / "1.1")


def saved(group: LearnerGroup, version: str = "1.1", **progress: Any) -> Path:
    path = group.save(PolicyVersion.parse(version), Progress(**progress).as_json()).result()
    assert isinstance(path, Path)
    return path


def written(file: Path, content: bytes) -> None:
    """With the right checksum, as who wants to harm writes it."""
    file.write_bytes(content)
    file.with_name(f"{file.name}.crc32").write_text(f"{len(content)} {zlib.crc32(content)}\n")


def with_checksum(controller: str) -> str:
    return f'{{"crc32": {zlib.crc32(controller.encode())}, {controller[1:]}'


def refusal(group: LearnerGroup, path: Path) -> str:
    with pytest.raises(UserError) as error:
        group.restore(path)
    sentence = str(error.value)
    assert sentence.startswith(f"checkpoint {path}")
    assert "\n" not in sentence
    assert len(sentence) < 500 + len(str(path))
    return sentence


class _Runs:
    """Makes a folder where it is unpickled as anything is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("place", ["alone", "inside"])
def test_code_in_the_metadata_never_runs(
    group: LearnerGroup, path: Path, tmp_path: Path, place: str
) -> None:
    ran = tmp_path / "ran"
    harmful: Any = _Runs(ran)
    if place == "inside":
        harmful = pickle.loads((path / ".metadata").read_bytes())
        harmful.storage_meta = _Runs(ran)
    written(path / ".metadata", pickle.dumps(harmful))
    assert "asks for posix.mkdir" in refusal(group, path)
    assert not ran.exists()


def test_code_in_the_place_of_a_tensor_never_runs(
    group: LearnerGroup, path: Path, tmp_path: Path
) -> None:
    """torch unpickles what the metadata calls bytes."""
    ran, name = tmp_path / "ran", "rng.0.cpu"
    harmful = BytesIO()
    torch.save(_Runs(ran), harmful)
    metadata = pickle.loads((path / ".metadata").read_bytes())
    file = next(iter(metadata.storage_data.values())).relative_path
    content = (path / file).read_bytes()
    metadata.state_dict_metadata[name] = BytesStorageMetadata()
    metadata.storage_data[MetadataIndex(name)] = _StorageInfo(
        file, len(content), len(harmful.getvalue())
    )
    written(path / file, content + harmful.getvalue())
    written(path / ".metadata", pickle.dumps(metadata))
    assert f"{name} is not a tensor" in refusal(group, path)
    assert not ran.exists()


@pytest.mark.parametrize("changed", [".metadata", "__0_0.distcp"])
def test_no_file_is_read_before_all_are_as_they_were_written(
    group: LearnerGroup, path: Path, tmp_path: Path, changed: str
) -> None:
    """Metadata that asks for code is not even looked at while it, or another file, is not what its
    checksum says.
    """
    ran = tmp_path / "ran"
    written(path / ".metadata", pickle.dumps(_Runs(ran)))
    content = (path / changed).read_bytes()
    (path / changed).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert f"{changed} is not as it was written" in refusal(group, path)
    assert not ran.exists()


HASHED = (
    b"\x80\x04}("
    + b"K\x01K\x01\x86\x94"
    + b"".join(b"h%c" % (n) * 2 + b"\x86\x94" for n in range(60))
    + b"K\x01u."
)
"""A key whose hash takes 2**60 steps."""
FAR = b"\x80\x04Nr\xff\xff\xff\x7f."
"""A memory of 2**31 places."""


@pytest.mark.parametrize(
    "metadata", [b"", b"\x80", HASHED, FAR, b"\x80\x04].", b"cos\nsystem\n(S'true'\ntR."]
)
def test_metadata_that_is_none_is_one_sentence(
    group: LearnerGroup, path: Path, metadata: bytes
) -> None:
    written(path / ".metadata", metadata)
    assert ".metadata is damaged" in refusal(group, path)


def test_damaged_metadata_is_read_right_or_is_one_sentence(group: LearnerGroup, path: Path) -> None:
    whole, chance = (path / ".metadata").read_bytes(), random.Random(7)
    refused: list[str] = []
    expected = state(group)
    for _ in range(100):
        changed = bytearray(whole)
        for _ in range(chance.choice((1, 1, 4, 64))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        written(path / ".metadata", bytes(changed))
        try:
            group.restore(path)
        except UserError as error:
            refused.append(str(error))
        else:
            assert all(
                torch.equal(found, wanted)
                for found, wanted in zip(state(group), expected, strict=True)
            )
    assert len(refused) > 20
    assert not any("\n" in sentence for sentence in refused)


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata"])
def test_a_file_without_its_checksum_is_not_read(
    group: LearnerGroup, path: Path, name: str
) -> None:
    (path / f"{name}.crc32").unlink()
    assert f"{name}.crc32 does not exist" in refusal(group, path)


@pytest.mark.parametrize("checksum", ["", "1", "x y", "1 2 3", "9" * 5_000 + " 1"])
def test_a_checksum_that_is_none_is_one_sentence(
    group: LearnerGroup, path: Path, checksum: str
) -> None:
    (path / ".metadata.crc32").write_text(checksum)
    assert ".metadata.crc32 is not as it was written" in refusal(group, path)


@pytest.mark.parametrize("has_checksum", [False, True])
@pytest.mark.parametrize(
    "controller",
    [
        '{"updates": 1e999, "world_size": 1, "controller": null}',
        '{"updates": 1, "world_size": Infinity, "controller": null}',
        f'{{"updates": 1{"0" * 400}, "world_size": 1, "controller": null}}',
        '{"updates": 1, "world_size": 0, "controller": null}',
        '{"updates": true, "world_size": 1, "controller": null}',
        '{"updates": 1, "world_size": 1, "controller": [1]}',
        f'{{"updates": 1, "world_size": 1, "controller": {NEST}}}',
        '{"updates": 1, "world_size": 1, "controller": {"step": NaN}}',
        '{"format": 2, "updates": 1, "world_size": 1}',
        "[]",
        "7",
        "\x00",
    ],
    ids=lambda text: text[:60],
)  # fmt: skip
def test_a_controllers_file_that_is_none_is_one_sentence(
    group: LearnerGroup, path: Path, controller: str, has_checksum: bool
) -> None:
    controller = controller.replace('{"updates"', '{"format": 2, "updates"', 1)
    if has_checksum:
        controller = with_checksum(controller)
    (path / "controller.json").write_text(controller)
    assert "remove it" in refusal(group, path)


def test_a_changed_controllers_file_is_noticed(group: LearnerGroup) -> None:
    path = saved(group, trained_tokens=5000)
    file = path / "controller.json"
    file.write_text(file.read_text().replace("5000", "6000"))
    assert "controller.json is not as it was written" in refusal(group, path)


@pytest.mark.parametrize(
    "change",
    [
        {"step": "x"}, {"step": -1}, {"earlier": [[1]]}, {"uses": [1]}, {"curve": [[1, 2]]},
        {"compute_state": 3},
        {"ledger": {"next_sequence": 1}}, {"ledger": {"next_sequence": 1, "outstanding": {"x": "p"},
            "held": {}}},
        {"curriculum": {"prompts": 1}}, {"downstream_steps": None},
        {"compute_state": {"generator": 1.0}},
        {"ledger": {"next_sequence": 10**15, "outstanding": {}, "held": {}}},
        {"ledger": {"next_sequence": 1, "outstanding": {}, "held": {"0": "1-x"}}},
    ],
    ids=str,
)  # fmt: skip
def test_a_state_that_no_controller_had_gives_the_checkpoint_before(
    group: LearnerGroup, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    saved(group, "1.1", step=1)
    newest = group.save(PolicyVersion(1, 2), Progress(step=2).as_json() | change).result()
    found = newest_whole(group.config, group)
    assert found is not None
    assert found.step == 1
    assert [
        str(newest) in line for line in capsys.readouterr().out.splitlines() if "damaged" in line
    ] == [True]


def test_a_newer_checkpoint_is_not_passed_over(group: LearnerGroup) -> None:
    saved(group, "1.1", step=1)
    path = saved(group, "1.2", step=2)
    (path / "controller.json").write_text(with_checksum('{"format": 3, "updates": 1}'))
    with pytest.raises(
        UserError, match=r"is of format 3, this Rollcast knows 2 at most; resume with the release"
    ):
        newest_whole(group.config, group)


def test_metadata_that_names_a_file_elsewhere_is_refused(group: LearnerGroup, path: Path) -> None:
    metadata = pickle.loads((path / ".metadata").read_bytes())
    next(iter(metadata.storage_data.values())).relative_path = "../../../secret.distcp"
    written(path / ".metadata", pickle.dumps(metadata))
    assert "secret.distcp, which .metadata names, does not exist" in refusal(group, path)


def test_an_earlier_release_finds_what_it_looks_for(group: LearnerGroup) -> None:
    """It may be asked to resume after a rollback."""
    fields = json.loads((saved(group, step=3) / "controller.json").read_text())
    assert (fields["updates"], fields["world_size"], fields["controller"]["step"]) == (0, 1, 3)
