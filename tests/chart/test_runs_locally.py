"""The CPU profile as rendered, run to its end on this machine; local_cluster.py says what is in the
cluster's place.
"""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from testkit.generator.caches import share_caches
from testkit.system.harness import wait_for
from tests.chart.connections import Connection, Watch
from tests.chart.local_cluster import SUBNET, LocalCluster
from tests.chart.local_run import (
    INIT_SECONDS,
    PROBE_SECONDS,
    SMALLER,
    STEPS,
    finish,
    listens,
    ready,
)
from tests.chart.network import Network
from tests.chart.rendering import merged, profile, render
from tests.system.conftest import SMALL

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(1200)]


@pytest.fixture
def short_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pods-") as folder:
        yield Path(folder)


def test_the_rendered_pods_finish_a_run(short_path: Path) -> None:
    objects = render(merged(profile("cpu"), SMALLER))
    grace = {}
    with LocalCluster(objects, short_path) as cluster, Watch(cluster) as watch:
        redis, trainer, generator, forecaster = (
            cluster.pod(role) for role in ("redis", "trainer", "generator", "forecaster")
        )
        # As Helm does before all else.
        assert ": valid (run 'demo'" in finish(cluster.pod("check"), "check", INIT_SECONDS)
        redis.start("redis")
        wait_for(lambda: listens(redis, 6379), 120, "Redis")
        base = ensure_base_model(SMALL, lambda share: None)
        for pod in (
            trainer,
            generator,
        ):  # in the place of the demo's, so that init containers find that made
            shutil.copytree(base, pod.folder / "volumes" / "models" / BaseModel().key)
            share_caches(
                pod.folder / "volumes" / "home"
            )  # tests/generator/test_fresh_machine.py starts without any
            finish(pod, "model", INIT_SECONDS)
            grace[pod.name] = pod.template.spec["terminationGracePeriodSeconds"]
        forecaster.start("forecaster")
        process = trainer.start("trainer")
        sampler = generator.start("generator")
        finish(cluster.pod("test", owner="test-redis"), "test", INIT_SECONDS)
        wait_for(
            lambda: sampler.poll() is not None or ready(generator, "generator"),
            500,
            "a ready generator",
            every=PROBE_SECONDS,
        )
        assert sampler.poll() is None, generator.log("generator").read_text()[-3000:]
        assert trainer.probe("trainer", "startupProbe") == 0
        assert ready(forecaster, "forecaster")
        assert SUBNET in finish(cluster.pod("test", owner="test-generator"), "test", INIT_SECONDS)
        finish(cluster.pod("test", owner="test-forecaster"), "test", INIT_SECONDS)
        assert process.wait(500) == 0, trainer.log("trainer").read_text()[-3000:]

        run_folder = short_path / "claims" / "demo-rollcast-runs" / "demo"
        evaluations = [
            json.loads(line) for line in (run_folder / "evaluations.jsonl").read_text().splitlines()
        ]
        assert [line["step"] for line in evaluations] == [0, 2, STEPS]
        assert all(line["samples"] == 8 * 4 for line in evaluations)
        assert (run_folder / "model" / "config.json").exists()
        seen = httpx.get(f"http://{forecaster.address}:8400/metrics", timeout=10).text
        assert "rollcast_forecast" in seen

        sampler.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        assert sampler.wait(grace[generator.name]) == 0, generator.log("generator").read_text()[
            -3000:
        ]
        assert time.monotonic() - begun < grace[generator.name]
        assert "left" in generator.log("generator").read_text()

        # What a pod does that is started again after the run's end, without a generator left:
        # nothing.
        lines = (run_folder / "steps.jsonl").read_text()
        assert trainer.start("trainer").wait(240) == 0, trainer.log("trainer").read_text()[-3000:]
        assert (run_folder / "steps.jsonl").read_text() == lines
    _admitted(Network(objects), watch.seen)


def _admitted(network: Network, connections: set[Connection]) -> None:
    """What the run was seen to need, its policies let through."""
    for connection in connections:
        source, target = network.roles[connection.source], network.roles[connection.target]
        assert network.admits(source, target, connection.port), connection
    between = {(connection.source, connection.target) for connection in connections}
    assert between >= {
        ("trainer", "redis"),
        ("generator", "redis"),
        ("generator", "trainer"),
        ("forecaster", "trainer"),
    }, "else nobody looked"
    ports = set(network.roles["trainer"].ports.values()) | set(
        network.roles["generator"].ports.values()
    )
    assert any(
        {connection.source, connection.target} == {"trainer", "generator"}
        and connection.port not in ports
        for connection in connections
    ), "the weights' own connections use ports of the moment"


def test_two_ranks_add_up_as_the_helm_test_does(tmp_path: Path) -> None:
    with LocalCluster(render(profile("cpu")), tmp_path) as cluster:
        ranks = [cluster.pod(role) for role in ("test-peer", "test-ranks")]
        processes = [pod.start("test") for pod in ranks]
        for pod, process in zip(ranks, processes, strict=True):
            assert process.wait(120) == 0, pod.log("test").read_text()
            assert "added up" in pod.log("test").read_text()
