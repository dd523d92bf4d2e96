"""The results of one revision on recorded runs and groups, as one line of JSON: `probe.py RUNS
GROUPS OUTPUT`.

It imports the modules of the revision that PYTHONPATH names, so each is asked for under its old
place and its new.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import json
import lzma
import struct
import sys
import tempfile
from collections.abc import Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

HOUR = 3_600.0
GENERATORS = (3, 3, 4, 2, 3)
"""Devices of generators between evaluations, in turn: a fleet that changes."""
TRAINERS = 1
BATCH = 8
"""Groups."""
TENSORS = (
    ("a", "float32", (301, 7)),
    ("b", "bfloat16", (70, 3)),
    ("s", "float32", ()),
    ("big", "bfloat16", (3000, 1024)),
    ("c", "float32", (5,)),
)
"""Name, type and shape: a scalar, odd rows, and one tensor of many buckets."""
BUCKET_BYTES = 1 << 16
WORLDS = (1, 2, 3, 5)
"""Trainer ranks that share the sending."""


def module(name: str, *rooms: str) -> Any:
    """`rollcast.{room}.{name}` of the first room that has it."""
    for room in rooms:
        try:
            return importlib.import_module(f"rollcast.{room}.{name}")
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith(f"rollcast.{room}"):
                raise
    raise ModuleNotFoundError(f"{name} is in none of {', '.join(rooms)}")


def fit() -> Any:
    """The revision's `fit`, which was `rollcast.scaling.posterior.fit`
    until `scaling/` had rooms.
    """
    try:
        return importlib.import_module("rollcast.scaling.decisions.fit").fit
    except ModuleNotFoundError:
        return importlib.import_module("rollcast.scaling.posterior").fit


def plain(value: Any) -> Any:
    """The value as JSON, floats to the last bit."""
    if isinstance(value, Enum):
        # Its name in the code may be another one in the other revision.
        return plain(value.value)
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), value.tobytes().hex()]
    if isinstance(value, (bool, str, int)) or value is None:
        return value
    if isinstance(value, (float, np.floating)):
        return float(value).hex()
    if isinstance(value, bytes):
        return value.hex()
    if dataclasses.is_dataclass(value):
        names = sorted(field.name for field in dataclasses.fields(value))
        return [plain(getattr(value, name)) for name in names]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(type(value))


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()


def forecasts(run: dict[str, Any], folder: Path) -> list[str]:
    """One digest for each number of evaluations: the law, the verdict, the readings of the grid,
    the end.
    """
    evaluations = module("evaluations", "curves", "forecaster")
    made = module("run_forecast", "curves", "forecaster")
    budget = getattr(made, "RunBudget", None) or made.Budget
    (folder / "format.json").write_text('{"format": 1}')
    (folder / "evaluations.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in run["evaluations"])
    )
    (folder / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in run["steps"]))
    reading = (
        module("run_folder", "curves.sources", "curves", "forecaster")
        .RunFolder(folder, run["run"])
        .read()
    )
    found = []
    for count in range(1, len(reading.evaluations) + 1):
        log = evaluations.EvaluationLog()
        for item in reading.evaluations[:count]:
            log.add(item)
        forecast = made.forecast_run(
            run["run"],
            log.sorted_out()[0],
            budget(steps=run["budget_steps"]),
            sequence=count,
            updated_at=0.0,
        )
        if forecast is not None:
            grid = made.metric_grid(forecast)
            law = forecast.forecast
            # The verdict's sentence is English, which may change.
            told = (
                made.look_ahead(forecast, grid),
                law.best,
                law.verdict.kind,
                law.excluded,
                forecast.end,
            )
            found.append(
                digest(
                    (
                        told,
                        grid,
                        forecast.axis,
                        forecast.midpoint(),
                        forecast.compute_to_target(0.6),
                    )
                )
            )
    return found


def command_line(run: dict[str, Any], folder: Path) -> str:
    """What `rollcast fit` makes of the file that `forecasts` wrote."""
    source = module("curve_source", "curves", "cli")
    curve = source.read_curve(str(folder / "evaluations.jsonl"), source.Columns(), None)
    law = fit()(curve, source.fit_options(None, None))
    quantiles = (0.05, 0.5, 0.95)
    return digest(
        (curve.compute, curve.pass_rate, law.best, law.verdict.kind, law.asymptote(quantiles))
    )


def accounts(run: dict[str, Any], folder: Path) -> str:
    """The ledger of device-hours over the run's own times: after every tick its value and its
    record. It starts again in the middle, from its record, as after a trainer that was killed.
    """
    compute = module("compute", "trainer.control", "trainer")
    computes = [line["compute_device_hours"] for line in run["evaluations"]]
    times = [1e9 + HOUR * hours / (TRAINERS + GENERATORS[0]) for hours in computes]
    now = [1e9]
    told: list[Any] = []
    path = folder / "compute.json"
    state = None
    half = len(times) // 2
    for part in (times[:half], times[half:]):
        ledger = compute.ComputeLedger(path, clock=lambda: now[0], wall_clock=lambda: now[0])
        ledger.start(TRAINERS, state, start_up=None)
        for place, at in enumerate(part):
            now[0] = max(now[0], at)
            ledger.tick(GENERATORS[place % len(GENERATORS)], [30.0] if place % 4 == 1 else [])
            ledger.save(stopped=at == times[-1])
            told.append((ledger.state, ledger.spent, ledger.total_state, path.read_bytes()))
        state = dict(ledger.state)
    return digest(told)


def recorded(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """(task, group) of each entry of tests/trainer/recorded_groups.xz: three parts, each behind its
    length.
    """
    data = lzma.decompress(path.read_bytes())
    parts = []
    start = 0
    while start < len(data):
        (length,) = struct.unpack_from("<I", data, start)
        parts.append(data[start + 4 : start + 4 + length])
        start += 4 + length
    yield from zip(parts[1::3], parts[2::3], strict=True)


def wire(path: Path) -> dict[str, Any]:
    """Tasks and groups read and written again, and the batches that are made of the groups."""
    codec = module("codec", "rollouts")
    tasks = []
    groups = []
    same = 0
    for task, group in recorded(path):
        tasks.append(codec.encode_task(codec.decode_task(task)))
        groups.append(codec.encode_group(codec.decode_group(group)))
        same += (tasks[-1], groups[-1]) == (task, group)
    assemble = module("assembly", "trainer.control", "trainer").assemble
    recipe = importlib.import_module("rollcast.config.recipe").Recipe()
    trained = [group for group in map(codec.decode_group, groups) if group.purpose.name == "TRAIN"]
    batches = [
        assemble(trained[start : start + BATCH], recipe) for start in range(0, len(trained), BATCH)
    ]
    return {
        "tasks": digest(tasks),
        "groups": digest(groups),
        "num_groups": len(groups),
        "as_recorded": same,
        "batches": digest(batches),
        "num_batches": len(batches),
    }


class Recorder:
    """A process group that keeps what would be broadcast on one lane."""

    def __init__(self, lane: int, num_lanes: int, total: Any) -> None:
        self.address = SimpleNamespace(lane=lane, num_lanes=num_lanes)
        self.device = torch.device("cpu")
        self._total = total
        self.in_flight = 0

    def begin_broadcast(self, piece: Any) -> None:
        self.broadcast(piece)

    begin = begin_broadcast
    """Its former name."""

    def broadcast(self, piece: Any) -> None:
        content = piece.numpy().tobytes()
        self._total.update(len(content).to_bytes(8, "little"))
        self._total.update(content)


def published(world: int) -> str:
    """SHA-256 of all that `world` ranks send for one version: the pieces of every lane, then the
    manifest.
    """
    manifests = module("manifest", "weights.plan", "weights")
    shards = module("shards", "weights.plan", "weights")
    staging = module("staging", "weights.sender", "weights")
    lanes = module("lanes", "weights.sender", "weights")
    version = importlib.import_module("rollcast.wire.version").PolicyVersion(2, 9)
    messages = importlib.import_module("rollcast.wire.weights_pb2")
    total = hashlib.sha256()
    specs = [manifests.TensorSpec(name, kind, shape) for name, kind, shape in TENSORS]
    buckets = manifests.plan_buckets(specs, BUCKET_BYTES)

    def fill(source: Any, rank: int) -> None:
        noise = torch.Generator().manual_seed(rank)
        source.memory.copy_(
            torch.randint(0, 256, source.memory.shape, dtype=torch.uint8, generator=noise)
        )

    for rank in range(world):
        slots = staging.StagingSlots(shards.shard_buckets(buckets, rank, world))
        slots.fill(1, version, 0.0, partial(fill, rank=rank))
        group = Recorder(rank, world, total)
        # A slot was once sent as its changes since a base, if there was one.
        base = (None,) if "base" in inspect.signature(lanes.send_slot).parameters else ()
        lanes.send_slot(slots, 1, version, *base, group)
    manifest = manifests.manifest_to_proto(manifests.Manifest(version, buckets, "fp32"))
    total.update(messages.Publish(epoch=3, manifest=manifest).SerializeToString(deterministic=True))
    return total.hexdigest()


def main(runs_file: str, groups_file: str, output: str) -> None:
    rollcast = importlib.import_module("rollcast")
    assert Path.cwd() in Path(str(rollcast.__file__)).parents, (
        f"{rollcast.__file__} is of another revision"
    )
    told: dict[str, Any] = {"forecasts": {}, "fit": {}, "accounts": {}}
    for run in json.loads(Path(runs_file).read_text()):
        with tempfile.TemporaryDirectory() as folder:
            told["forecasts"][run["run"]] = forecasts(run, Path(folder))
            told["fit"][run["run"]] = command_line(run, Path(folder))
            told["accounts"][run["run"]] = accounts(run, Path(folder))
    told["wire"] = wire(Path(groups_file))
    told["weights"] = {f"{world} ranks": published(world) for world in WORLDS}
    Path(output).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
