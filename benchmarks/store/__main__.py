"""Versions through a store: bytes of each, and seconds until a generator has it.

    python -m benchmarks.store [--models demo 0.6b] [--versions 3] [--milliseconds 50]
        [--gigabits 1]

A trainer rank writes versions of a model's shapes, as whole ones and as changes. The weights are
random with a standard deviation of 0.02, and each update moves them by the learning rate times a
normal deviate of 0.6: then as many bfloat16 words change as in a real run (lab/notes.md). A
generator's end pulls them over HTTP through a proxy with a round trip and a bandwidth, and verifies
them. Seconds of writing are those of one thread that encodes into a local folder. The bytes of
larger models are computed from the shares. Writes results/store.json.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from rollcast.connections.object_files import ObjectFolder
from rollcast.local.ports import free_port
from rollcast.weights.plan.manifest import (
    BucketSpec,
    Manifest,
    TensorSpec,
    plan_buckets,
    total_bytes,
)
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.receiver.store_pull import StorePull
from rollcast.weights.sender.rank_store import ObjectKind, RankStore
from rollcast.weights.sender.staging import CPU, StagingSlots
from rollcast.weights.transport.stored_object import StoredVersion
from rollcast.wire.version import PolicyVersion
from testkit.record import write_result
from testkit.weights.slow_network import SlowNetwork
from testkit.weights.trainer_end import wait_until

RATES = (1e-6, 1e-5)
SHAPES = {
    "demo": {"vocabulary": 32, "hidden": 128, "layers": 4, "inner": 256, "heads": 4, "kv_heads": 4},
    "0.6b": {
        "vocabulary": 151_936,
        "hidden": 1024,
        "layers": 28,
        "inner": 3072,
        "heads": 16,
        "kv_heads": 8,
    },
}
"""Qwen3 with tied embeddings."""
LARGER = {"8b": 8.19e9, "32b": 32.8e9}
"""Weights of Qwen3, in bfloat16."""
DTYPES = {"demo": "float32", "0.6b": "bfloat16"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--versions", type=int, default=3, help="of each rate")
    parser.add_argument("--milliseconds", type=float, default=50.0, help="of a round trip")
    parser.add_argument("--gigabits", type=float, default=1.0, help="a second")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, Any] = vars(arguments) | {"rows": []}
    for model in arguments.models:
        with tempfile.TemporaryDirectory(prefix="rollcast-store-") as folder:
            for row in measure(model, Path(folder), arguments):
                figures["rows"].append(row)
                print(json.dumps(row), flush=True)
    figures["computed"] = [
        larger(row, name, weights)
        for row in figures["rows"]
        if row["model"] == "0.6b"
        for name, weights in LARGER.items()
    ]
    print(write_result("store", figures))
    return 0


def larger(row: dict[str, Any], name: str, weights: float) -> dict[str, Any]:
    """A row for a larger model: the same share of its bytes, and the seconds of a line for them."""
    num_bytes = row["share_of_bytes"] * 2 * weights
    kept = {key: row[key] for key in ("kind", "learning_rate", "share_of_bytes")}
    seconds = {f"seconds_at_{gigabits}_gbit": 8e-9 * num_bytes / gigabits for gigabits in (1, 10)}
    rounded = {key: round(value, 1) for key, value in seconds.items()}
    return {"model": name, **kept, "gigabytes": round(num_bytes / 1e9, 2), **rounded}


def measure(model: str, folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A whole version, then changes at each rate."""
    buckets = plan_buckets(specs(model), 64 << 20)
    masters = Snapshot.on(CPU, plan_buckets(specs(model, "float32"), 64 << 20))
    generator = torch.Generator().manual_seed(0)
    for _, weights in masters.views():
        weights.normal_(0.0, 0.02, generator=generator)
    slots = StagingSlots(buckets)
    store = RankStore(ObjectFolder(folder), 0, slots)
    port = free_port("127.0.0.1")
    server = subprocess.Popen(
        [sys.executable, "-m", "testkit.weights.range_server", str(folder), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    network = SlowNetwork(port, arguments.milliseconds / 1e3, arguments.gigabits * 1e9 / 8)
    try:
        wait_until(lambda: answers(port))
        with network.opened() as slow_port:
            pull = StorePull(
                ObjectFolder(f"http://127.0.0.1:{slow_port}"), lambda specs: Snapshot.on(CPU, specs)
            )
            bench = Bench(model, buckets, masters, slots, store, pull, generator)
            whole = bench.version("whole", 0.0, 1)
            changes = [bench.version("changes", rate, arguments.versions) for rate in RATES]
            return [whole, *changes]
    finally:
        server.kill()
        server.wait()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


class Bench:
    """One model's trainer rank and generator."""

    def __init__(
        self,
        model: str,
        buckets: tuple[BucketSpec, ...],
        masters: Snapshot,
        slots: StagingSlots,
        store: RankStore,
        pull: StorePull,
        generator: torch.Generator,
    ) -> None:
        self._model = model
        self._buckets = buckets
        self._masters = masters
        self._slots = slots
        self._store = store
        self._pull = pull
        self._generator = generator
        self._step = 0

    def version(self, kind: ObjectKind, rate: float, versions: int) -> dict[str, Any]:
        """Medians over some versions."""
        rows = [self._once(kind, rate) for _ in range(versions)]
        whole_bytes = total_bytes(self._buckets)
        num_bytes = median(row["bytes"] for row in rows)
        return {
            "model": self._model,
            "kind": kind,
            "learning_rate": rate,
            "version_bytes": whole_bytes,
            "changed_share": round(median(row["changed"] for row in rows), 4),
            "bytes": num_bytes,
            "share_of_bytes": round(num_bytes / whole_bytes, 4),
            "write_seconds": round(median(row["write"] for row in rows), 2),
            "pull_seconds": round(median(row["pull"] for row in rows), 2),
        }

    def _once(self, kind: ObjectKind, rate: float) -> dict[str, float]:
        self._step += 1
        version = PolicyVersion(1, self._step)
        slot = self._step % 2
        changed = self._fill(slot, version, rate)
        started_at = time.perf_counter()
        written = self._store.write(kind, slot, version)
        written_at = time.perf_counter()
        entry = StoredVersion(version, written.base, (written.stored,))
        manifest = Manifest(version, self._buckets, "fp32")
        pulled = self._pull.begin(manifest, [entry.to_proto()]).result()
        ended_at = time.perf_counter()
        assert torch.equal(pulled.staged.memory, self._slots[slot].memory), "bit for bit"
        return {
            "changed": changed,
            "bytes": written.stored.num_bytes,
            "write": written_at - started_at,
            "pull": ended_at - written_at,
        }

    def _fill(self, slot: int, version: PolicyVersion, rate: float) -> float:
        """The masters after an update, in the published dtype; returns the share that changed."""
        former = dict(self._slots[1 - slot].views())
        num_changed = 0

        def write(snapshot: Snapshot) -> None:
            nonlocal num_changed
            masters = dict(self._masters.views())
            for name, weights in snapshot.views():
                if rate:
                    step = torch.randn(weights.shape, generator=self._generator)
                    masters[name].sub_(step, alpha=0.6 * rate)
                weights.copy_(masters[name])
                num_changed += int((weights != former[name]).sum())

        self._slots.fill(slot, version, 1.0, write)
        return num_changed / sum(weights.numel() for weights in former.values())


def specs(model: str, dtype: str | None = None) -> list[TensorSpec]:
    shape = SHAPES[model]
    hidden, inner, head = shape["hidden"], shape["inner"], 128 if model == "0.6b" else 32
    queries, keys = shape["heads"] * head, shape["kv_heads"] * head
    found = [
        ("model.embed_tokens.weight", (shape["vocabulary"], hidden)),
        ("model.norm.weight", (hidden,)),
    ]
    for layer in range(shape["layers"]):
        found += [
            (f"model.layers.{layer}.{name}.weight", rows)
            for name, rows in {
                "self_attn.q_proj": (queries, hidden),
                "self_attn.k_proj": (keys, hidden),
                "self_attn.v_proj": (keys, hidden),
                "self_attn.o_proj": (hidden, queries),
                "self_attn.q_norm": (head,),
                "self_attn.k_norm": (head,),
                "mlp.gate_proj": (inner, hidden),
                "mlp.up_proj": (inner, hidden),
                "mlp.down_proj": (hidden, inner),
                "input_layernorm": (hidden,),
                "post_attention_layernorm": (hidden,),
            }.items()
        ]
    return [TensorSpec(name, dtype or DTYPES[model], rows) for name, rows in found]


if __name__ == "__main__":
    sys.exit(main())
