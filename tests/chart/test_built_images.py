"""The chart's pods, each in the file system of its built image: a small run from install to its
end, and the rest.

`make images-proof` builds the images and sets ROLLCAST_IMAGE_ROOTS. A container runs as its image
and the chart say: its command, environment, user, folders, and a root that nobody can write. What
the kernel shares (network, processes) is this machine's; Redis, whose image is not ours, is this
machine's too.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from rollcast.tasks.sandbox import protections
from testkit.system.harness import wait_for
from tests.autoscaler.api_server import NAMESPACE, ApiServer, job
from tests.chart.local_cluster import LocalCluster, LocalPod
from tests.chart.local_run import SMALLER, STEPS, finish, listens, ready
from tests.chart.rendering import PodOf, merged, pods, profile, render
from tests.system.conftest import SMALL

ROOTS = os.environ.get("ROLLCAST_IMAGE_ROOTS")
pytestmark = [
    pytest.mark.system,
    pytest.mark.engine,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        ROOTS is None,
        reason="ROLLCAST_IMAGE_ROOTS is not set: `make images-proof` builds the images",
    ),
]
USER = 1000
ENTER = """
root=$1 workdir=$2
shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
while [ "$1" != -- ]; do
  mount --bind "$1" "$root$2"
  shift 2
done
shift
mount -o remount,bind,ro "$root"
exec chroot --userspec=1000:1000 "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$workdir" "$@"
"""
"""In a mount namespace of its own: what a container runtime does before a container's first
program."""


class ImagePod(LocalPod):
    """A pod whose containers have the file system of their image."""

    def start(self, name: str) -> subprocess.Popen[bytes]:
        container = self.container(name)
        image = re.sub(r":.*", "", container["image"].rpartition("/")[2])
        assert ROOTS is not None
        root = (Path(ROOTS) / image).resolve()
        settings = json.loads((Path(ROOTS) / f"{image}.json").read_text())
        folders: list[str] = []
        for mount in container.get("volumeMounts", []):
            folder = self._volume(mount["name"])
            belong_to_the_group(folder)
            (root / mount["mountPath"].lstrip("/")).mkdir(parents=True, exist_ok=True)
            folders += [str(folder), mount["mountPath"]]
        for file in ("/etc/hosts", "/etc/resolv.conf"):
            (root / file.lstrip("/")).touch()
            folders += [file, file]
        environment = dict(line.split("=", 1) for line in settings["Env"]) | self._environment(
            container
        )
        environment = {key: self._here(value, {}) for key, value in environment.items()}
        command = [
            self._here(expanded(word, environment), {})
            for word in [*container["command"], *container.get("args", [])]
        ]
        workdir = container.get("workingDir", settings.get("WorkingDir", "/"))
        enter = [
            "/usr/bin/unshare",
            "--mount",
            "--propagation",
            "private",
            "/bin/sh",
            "-euc",
            ENTER,
            name,
        ]
        with self.log(name).open("ab") as log:
            self.processes[name] = process = subprocess.Popen(
                [*enter, str(root), workdir, *folders, "--", *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment | {"PATH": f"{environment['PATH']}:/usr/sbin:/usr/bin:/sbin:/bin"},
                start_new_session=True,
            )
        return process

    def _here(self, text: str, paths: dict[str, Path]) -> str:
        """Names and addresses as they are on this machine;
        folders are where the chart mounts them.
        """
        return super()._here(text, {})


class ImageCluster(LocalCluster):
    """Pods of our images in those; others as processes of this machine."""

    def make(self, template: PodOf, address: str, index: int) -> LocalPod:
        ours = "rollcast/" in template.containers[0]["image"]
        return (ImagePod if ours else LocalPod)(self, template, address, index)


def expanded(text: str, environment: dict[str, Any]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda name: environment.get(name[1], name[0]), text)


def belong_to_the_group(folder: Path) -> None:
    """As fsGroup has it."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER, USER)


@pytest.fixture
def short_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="images-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_the_demos_task_runs_from_the_built_images_to_its_end(short_path: Path) -> None:
    objects = render(merged(profile("cpu"), SMALLER))
    assert {re.sub(r":.*", "", c["image"]) for pod in pods(objects) for c in pod.containers} >= {
        "rollcast/control",
        "rollcast/trainer",
        "rollcast/generator",
    }
    with ImageCluster(objects, short_path) as cluster:
        redis, trainer, generator, forecaster = (
            cluster.pod(role) for role in ("redis", "trainer", "generator", "forecaster")
        )
        assert ": valid (run 'demo'" in finish(cluster.pod("check"), "check", 120)
        redis.start("redis")
        wait_for(lambda: listens(redis, 6379), 20, "Redis")
        base = ensure_base_model(SMALL, lambda share: None)
        for pod in (trainer, generator):
            shutil.copytree(base, pod.folder / "volumes" / "models" / BaseModel().key)
            finish(pod, "model", 400)
        forecaster.start("forecaster")
        process = trainer.start("trainer")
        sampler = generator.start("generator")
        wait_for(
            lambda: process.poll() is not None or sampler.poll() is not None,
            900,
            "the end of the run",
            every=2,
        )
        assert sampler.poll() is None, generator.log("generator").read_text(errors="replace")[
            -12_000:
        ]
        assert process.poll() == 0, trainer.log("trainer").read_text(errors="replace")[-12_000:]
        finish(cluster.pod("test", owner="test-forecaster"), "test", 120)
        run_folder = short_path / "claims" / "demo-rollcast-runs" / "demo"
        evaluations = [
            json.loads(line) for line in (run_folder / "evaluations.jsonl").read_text().splitlines()
        ]
        assert [line["step"] for line in evaluations] == [0, 2, STEPS]
        assert (run_folder / "model" / "config.json").stat().st_uid == USER


def test_the_control_images_autoscaler_serves_its_probes_and_keda_and_its_hook_deletes_trainers(
    short_path: Path,
) -> None:
    """A stand-in for the API server is named by a kubeconfig: its HTTP knows no service account."""
    values = merged(profile("cpu"), {"autoscaler": {"mode": "keda"}})
    objects = copy.deepcopy(render(values, name="rollcast", namespace=NAMESPACE))
    for template in pods(objects):
        if template.role in ("autoscaler", "uninstall"):
            template.spec["containers"][0]["env"].append(
                {"name": "KUBECONFIG", "value": "/tmp/kubeconfig"}
            )
    with ApiServer() as server, ImageCluster(objects, short_path) as cluster:
        autoscaler, uninstall = cluster.pod("autoscaler"), cluster.pod("uninstall")
        for pod in (autoscaler, uninstall):
            server.kubeconfig(pod._volume("tmp"))
        process = autoscaler.start("autoscaler")
        wait_for(
            lambda: ready(autoscaler, "autoscaler") or process.poll() is not None,
            120,
            "the autoscaler",
        )
        assert process.poll() is None, autoscaler.log("autoscaler").read_text(errors="replace")[
            -3_000:
        ]
        assert listens(autoscaler, 8402), "KEDA's port"
        process.terminate()
        assert process.wait(30) == 0
        left = job("left")
        left["metadata"]["labels"] |= {
            "app.kubernetes.io/instance": "rollcast",
            "app.kubernetes.io/part-of": "rollcast",
        }
        server.jobs = [left, job("of another release")]
        assert finish(uninstall, "uninstall", 120) == "deleted: Job left\n"
        assert [item["metadata"]["name"] for item in server.jobs] == ["of another release"]


def test_the_control_images_grader_is_ready_when_it_has_contained_a_hostile_program(
    short_path: Path,
) -> None:
    """On this machine's kernel in gVisor's place; where that lacks a protection, it ends and names
    it.
    """
    objects = render(merged(profile("cpu"), {"grader": {"enabled": True, "runtimeClassName": ""}}))
    with ImageCluster(objects, short_path) as cluster:
        grader = cluster.pod("grader")
        process = grader.start("grader")
        wait_for(lambda: ready(grader, "grader") or process.poll() is not None, 120, "the grader")
        said = grader.log("grader").read_text(errors="replace")
        if protections.missing():
            assert process.wait(30) != 0
            assert all(name in said for name in protections.missing()), said[-3_000:]
            return
        assert process.poll() is None, said[-3_000:]
        process.terminate()
        assert process.wait(60) == 0
