"""Versions that generators pull from a store: what arrives is whole, whatever breaks on the way."""

from __future__ import annotations

import re
import resource
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.connections.object_files import ObjectFolder
from rollcast.local.ports import free_port
from rollcast.weights.plan.manifest import TensorSpec
from testkit.weights.trainer_end import (
    PATIENCE_SECONDS,
    SPECS,
    WEIGHTS,
    Process,
    Trainer,
    wait_until,
)
from tests.weights import trainer_process
from tests.weights.uneven import UNEVEN


@pytest.fixture
def store(tmp_path: Path) -> dict[str, Any]:
    """Settings of a store in a folder."""
    return {"transport": "store", "store": {"location": f"{tmp_path}/store", "anchor_every": 4}}


@pytest.mark.parametrize("lanes", [1, 3])
def test_every_version_arrives_as_its_changes_and_a_newcomer_begins_with_an_anchor(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
    lanes: int,
) -> None:
    trainer = start_trainer(UNEVEN, lanes=lanes, **store)
    expected = trainer.publish(0)
    settings = {"weights": WEIGHTS | store}
    generators = [
        start_generator("a", trainer.rpc, **settings),
        start_generator("b", trainer.rpc, num_workers=2, **settings),
    ]
    for generator in generators:
        assert generator.wait("applied", version="1.0")["digest"] == expected
    trainer.wait_members("a", "b")
    for step in range(1, 8):
        expected = trainer.publish(step, changed_share=0.02)
        for generator in generators:
            assert generator.wait("applied", version=f"1.{step}")["digest"] == expected
    late = start_generator("late", trainer.rpc, **settings)
    assert late.wait("applied", version="1.7")["digest"] == expected
    trainer.wait_members("a", "b", "late")


def objects(store: dict[str, Any], suffix: str = "") -> list[Path]:
    """In the order in which they were written."""
    written_at: dict[Path, int] = {}
    for path in Path(store["store"]["location"]).glob(f"*{suffix}"):
        # The trainer may remove it meanwhile.
        with suppress(FileNotFoundError):
            written_at[path] = path.stat().st_mtime_ns
    return sorted(written_at, key=written_at.__getitem__)


def wait_stored(store: dict[str, Any], version: str) -> None:
    wait_until(lambda: any(path.name.startswith(f"{version}-") for path in objects(store)))
    time.sleep(0.3)  # until it is complete


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "index"])
@pytest.mark.parametrize("suffix", ["whole", "changes"])
def test_a_damaged_object_is_noticed_and_the_version_is_written_again(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
    damage: str,
    suffix: str,
) -> None:
    trainer = start_trainer(**store)
    for step in range(3):
        expected = trainer.publish(step, changed_share=0.02 if step else 1.0)
        wait_stored(store, f"1.{step}")
    spoiled = objects(store, suffix)[-1]
    data = bytearray(spoiled.read_bytes())
    match damage:
        case "flip":
            data[len(data) // 2] ^= 1
            spoiled.write_bytes(data)
        case "index":
            data[-3] ^= 1
            spoiled.write_bytes(data)
        case "cut":
            spoiled.write_bytes(data[: len(data) // 2])
        case "remove":
            spoiled.unlink()
    generator = start_generator("a", trainer.rpc, weights=WEIGHTS | store)
    assert generator.wait("applied", version="1.2")["digest"] == expected
    assert trainer.metric('rollcast_weight_failures_total{reason="pull",run="test"}') >= 1
    assert trainer.removed == []
    # What is spoiled while it holds the base costs it an anchor, not more.
    expected = trainer.publish(3, changed_share=0.02)
    assert generator.wait("applied", version="1.3")["digest"] == expected


def test_a_trainer_killed_while_it_writes_leaves_nothing_that_is_pulled_or_kept(
    start_process: Callable[..., Process],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
) -> None:
    port = free_port("127.0.0.1")
    settings = {"rpc": {"port": port}, "weights": store, "slow_write_seconds": 0.03}
    trainer = start_process(trainer_process.run, {"incarnation": 1, **settings})
    trainer.tell(0)
    generator = start_generator("a", {"port": port}, weights=WEIGHTS | store)
    held = trainer.wait("published")["digest"]
    assert generator.wait("applied", version="1.0")["digest"] == held
    for incarnation in range(2, 6):
        trainer.tell((incarnation, 0.02))
        for _ in range(16 + incarnation):
            trainer.wait("frame")
        trainer.signal(signal.SIGKILL)
        trainer.close()
        trainer = start_process(trainer_process.run, {"incarnation": incarnation, **settings})
        trainer.tell(incarnation)
        expected = trainer.wait("published")["digest"]
        version = f"{incarnation}.{incarnation}"
        assert generator.wait("applied", version=version)["digest"] == expected
    wait_until(lambda: {path.name.partition(".")[0] for path in objects(store)} == {"5"})


def test_a_generator_killed_or_slow_in_the_middle_of_a_pull_keeps_nobody_waiting(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
) -> None:
    trainer = start_trainer(**store)
    trainer.publish(0)
    settings = {"weights": WEIGHTS | store}
    quick = start_generator("quick", trainer.rpc, **settings)
    slow = start_generator("slow", trainer.rpc, slow_read_seconds=0.4, **settings)
    victim = start_generator("victim", trainer.rpc, slow_read_seconds=0.4, **settings)
    trainer.wait_members("quick", "slow", "victim")
    for step in range(1, 30):
        expected = trainer.publish(step, changed_share=0.02)
        assert quick.wait("applied", version=f"1.{step}")["digest"] == expected
        if step == 9:
            victim.wait("range")
            victim.signal(signal.SIGKILL)
    assert slow.wait("applied", version="1.29")["digest"] == expected
    applied = [event["version"] for event in slow.events if event["event"] == "applied"]
    assert len(applied) < 25, "it pulls what is newest when it has time"
    wait_until(lambda: trainer.removed == [("victim", "disconnected")])
    trainer.wait_members("quick", "slow")


def test_a_full_store_is_waited_for(
    start_process: Callable[..., Process],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
) -> None:
    settings = {"rpc": {"port": 0}, "weights": store, "incarnation": 1}
    trainer = start_process(trainer_process.run, settings)
    port = trainer.wait("started")["port"]
    trainer.tell(0)
    generator = start_generator("a", {"port": port}, weights=WEIGHTS | store)
    generator.wait("applied", version="1.0")
    trainer.tell(("limit", 1000))
    for step in (1, 2, 3):
        trainer.tell((step, 0.02))
    time.sleep(1.0)
    trainer.tell(("limit", resource.RLIM_INFINITY))
    for _ in range(4):
        expected = trainer.wait("published")["digest"]
    assert generator.wait("applied", version="1.3")["digest"] == expected
    for step in (1, 2):
        assert not any(path.name.startswith(f"1.{step}-") for path in objects(store)[:-3])


def test_objects_of_a_killed_trainer_make_room_for_the_next_one(
    start_trainer: Callable[..., Trainer], store: dict[str, Any]
) -> None:
    folder = Path(store["store"]["location"])
    folder.mkdir()
    for name in ("0.7-0-left.whole", "2.1-0-later.whole", "users.whole"):
        (folder / name).touch()
    trainer = start_trainer(**store)
    trainer.publish(0)
    wait_stored(store, "1.0")
    names = {path.name.partition("-")[0] for path in objects(store)}
    assert names == {"1.0", "2.1", "users.whole"}


def test_one_that_cannot_reach_the_store_is_fenced_and_holds_nobody_up(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
    tmp_path: Path,
) -> None:
    """It had a version, so its rollouts would become too old."""
    trainer = start_trainer(acknowledge_timeout_seconds=3.0, **store)
    trainer.publish(0)
    (tmp_path / "other").symlink_to(tmp_path / "store")
    elsewhere = WEIGHTS | {"transport": "store", "store": {"location": f"{tmp_path}/other"}}
    cut_off = start_generator("cut-off", trainer.rpc, weights=elsewhere)
    other = start_generator("other", trainer.rpc, weights=WEIGHTS | store)
    trainer.wait_members("cut-off", "other")
    (tmp_path / "other").unlink()
    expected = trainer.publish(1, changed_share=0.02)
    assert other.wait("applied", version="1.1")["digest"] == expected
    cut_off.wait("fenced", reason="failed")
    assert trainer.publisher.wait_acknowledged(1, 20.0)
    (tmp_path / "other").symlink_to(tmp_path / "store")
    assert cut_off.wait("applied", version="1.1")["digest"] == expected
    trainer.wait_members("again-1", "other")


def test_a_read_that_never_ends_holds_nobody_up(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
) -> None:
    """As on a hard mount whose server is gone."""
    trainer = start_trainer(acknowledge_timeout_seconds=2.0, **store)
    trainer.publish(0)
    weights = WEIGHTS | store | {"acknowledge_timeout_seconds": 2.0}
    start_generator("other", trainer.rpc, weights=weights).wait("applied", version="1.0")
    stuck = start_generator("stuck", trainer.rpc, weights=weights, slow_read_seconds=600.0)
    stuck.wait("range")
    stuck.wait("fenced", reason="failed")
    trainer.wait_members("other")
    assert trainer.removed == [("stuck", "failed")]


def test_a_slow_pull_after_failed_ones_is_not_cut_off(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
) -> None:
    """The object is at fault, not the generator, which takes longer than it may fail."""
    trainer = start_trainer(acknowledge_timeout_seconds=2.0, **store)
    expected = trainer.publish(0)
    settings = {"weights": WEIGHTS | store}
    start_generator("other", trainer.rpc, **settings).wait("applied", version="1.0")
    (spoiled,) = objects(store)
    data = bytearray(spoiled.read_bytes())
    data[len(data) // 2] ^= 1
    spoiled.write_bytes(data)
    slow = start_generator("slow", trainer.rpc, slow_read_seconds=1.5, **settings)
    assert slow.wait("applied", version="1.0")["digest"] == expected
    trainer.wait_members("other", "slow")
    assert trainer.removed == []


def test_a_store_that_is_away_for_all_fences_nobody(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
    tmp_path: Path,
) -> None:
    trainer = start_trainer(acknowledge_timeout_seconds=1.0, **store)
    trainer.publish(0)
    generators = [
        start_generator(name, trainer.rpc, weights=WEIGHTS | store) for name in ("a", "b")
    ]
    trainer.wait_members("a", "b")
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").touch()  # so that nothing can be made there either
    expected = trainer.publish(1, changed_share=0.02)
    time.sleep(4.0)
    (tmp_path / "store").unlink()
    (tmp_path / "away").rename(tmp_path / "store")
    for generator in generators:
        assert generator.wait("applied", version="1.1")["digest"] == expected
    assert trainer.removed == []


def test_a_store_that_removes_nothing_holds_no_end_up(
    start_trainer: Callable[..., Trainer], store: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = start_trainer(**store)
    trainer.publish(0)
    wait_stored(store, "1.0")
    has_answered = threading.Event()
    monkeypatch.setattr(ObjectFolder, "remove", lambda *name: has_answered.wait())
    stopping = threading.Thread(target=trainer.publisher.stop, args=[0.5], daemon=True)
    stopping.start()
    try:
        stopping.join(PATIENCE_SECONDS)
        assert not stopping.is_alive()
    finally:
        has_answered.set()


def test_a_rank_that_writes_while_its_refusal_is_read_is_heard(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rank 0 is slow between reading the refusal and removing it."""
    create = ObjectFolder.create
    refusals = [OSError("full")]

    def refuse_once(self: ObjectFolder, name: str) -> Any:
        if refusals and name.startswith("1.0-1-"):
            raise refusals.pop()
        return create(self, name)

    monkeypatch.setattr(ObjectFolder, "create", refuse_once)
    trainer = start_trainer(lanes=2, **store)
    replies: Any = trainer.replies.store

    class SlowRemoval:
        check, get, set = replies.check, replies.get, replies.set

        def delete_key(self, name: str) -> None:
            reply = "reply/1.0-1.whole"
            wait_until(lambda: self.check([reply]) and bool(self.get(reply)))
            replies.delete_key(name)

    monkeypatch.setattr(trainer.replies, "store", SlowRemoval())
    expected = trainer.publish(0)
    generator = start_generator("a", trainer.rpc, weights=WEIGHTS | store)
    assert generator.wait("applied", version="1.0")["digest"] == expected


def test_the_store_keeps_within_its_size_whatever_a_generator_still_needs(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
) -> None:
    version_bytes = sum(spec.num_bytes for spec in SPECS)
    max_bytes = 3 * version_bytes
    store["store"] |= {"max_gib": max_bytes / 2**30, "anchor_every": 3}
    trainer = start_trainer(heartbeat_timeout_seconds=60.0, **store)
    trainer.publish(0)
    frozen = start_generator("frozen", trainer.rpc, weights=WEIGHTS | store)
    trainer.wait_members("frozen")
    frozen.signal(signal.SIGSTOP)
    for step in range(1, 25):
        expected = trainer.publish(step, changed_share=0.1)
        wait_stored(store, f"1.{step}")
        sizes = []
        for path in objects(store):
            with suppress(FileNotFoundError):
                sizes.append(path.stat().st_size)
        assert sum(sizes) <= max_bytes
    frozen.signal(signal.SIGCONT)
    assert frozen.wait("applied", version="1.24")["digest"] == expected


def test_a_store_that_cannot_hold_three_versions_is_refused(
    start_trainer: Callable[..., Trainer], store: dict[str, Any]
) -> None:
    # Three versions are 0.0020943 GiB, which three digits round down.
    specs = [TensorSpec("weight", "float32", (768, 244))]
    store["store"]["max_gib"] = 1e-3
    with pytest.raises(
        UserError, match=r"^weights\.store\.max_gib = 0\.001: a version of this mo"
    ) as refusal:
        start_trainer(specs, **store)
    advised = re.findall(r"set it to ([\d.]+) or more", str(refusal.value))
    store["store"]["max_gib"] = float(advised[0])
    start_trainer(specs, **store)


def test_ends_with_different_transports_refuse_each_other(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
) -> None:
    trainer = start_trainer(**store)
    reason = start_generator("a", trainer.rpc).wait("refused")["reason"]
    assert "takes versions over process groups, the trainer publishes them from a store" in reason
