"""Rendered pods as processes of this machine, with as little put in the cluster's place as can be.

A container's command, arguments, environment, secrets, mounted files and ports are taken as they
are rendered. The cluster gives a pod an address, names for other pods, and folders; here

- each pod's address is a loopback address of its own, which stands for "every address" (0.0.0.0)
  and for the pod's own loopback (127.0.0.1) in what it is given: ports need not be changed, though
  trainer and generators share 8080;
- a Service's name becomes the address of the pod that its selector finds;
- a mounted folder becomes a temporary one: the same for pods that mount the same claim.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from rollcast.local.embedded_redis import find_server
from tests.chart.rendering import Object, PodOf, of_kind, pods

CHECKOUT = Path(__file__).parents[2]

SUBNET = f"127.0.{77 + int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0').removeprefix('gw'))}"
"""Of this test process: pods of another one listen on the same ports."""
PROBE_DEADLINE_SECONDS = 120.0
"""A probe imports Rollcast, which takes long where other tests run beside it; a cluster allows it
less."""

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_BY_THE_JOB = "batch.kubernetes.io/"


class LocalPod:
    """One pod: its address, its folders, and at most one running process per container."""

    def __init__(self, cluster: LocalCluster, template: PodOf, address: str, index: int) -> None:
        self.template = template
        self.address = address
        self.name = f"{template.owner['metadata']['name']}-{index}"
        self._cluster = cluster
        self._index = index
        self.folder = (
            cluster.folder / address.rpartition(".")[2]
        )  # short: sockets of Unix have paths of 107 characters
        self.folder.mkdir(parents=True)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def container(self, name: str) -> Object:
        (found,) = [
            container for container in self.template.containers if container["name"] == name
        ]
        return found

    def start(self, name: str) -> subprocess.Popen[bytes]:
        container = self.container(name)
        paths = {
            mount["mountPath"]: self._volume(mount["name"])
            for mount in container.get("volumeMounts", [])
        }
        environment = self._environment(container)
        command = [*container["command"], *container.get("args", [])]
        command = [self._here(_expanded(word, environment), paths) for word in command]
        if name == "redis":
            command += ["--bind", self.address]
        return self.run(
            name, command, {key: self._here(value, paths) for key, value in environment.items()}
        )

    def probe(self, container: str, kind: str) -> int:
        """Exit code of a container's exec probe, asked in its pod."""
        command = self.container(container)[kind]["exec"]["command"]
        given = {"JOB_COMPLETION_INDEX": str(self._index)}
        process = self.run(f"{container}-{kind}", [self._here(word, {}) for word in command], given)
        return process.wait(PROBE_DEADLINE_SECONDS)

    def run(
        self, name: str, command: list[str], environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        environment = {
            "PATH": f"{self._cluster.programs}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        } | environment
        program = shutil.which(command[0], path=environment["PATH"])
        assert program, f"{command[0]} is in no folder of {environment['PATH']}"
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                [program, *command[1:]],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _environment(self, container: Object) -> dict[str, str]:
        environment: dict[str, str] = {}
        if self.template.owner["kind"] == "Job":
            environment["JOB_COMPLETION_INDEX"] = str(self._index)
        for entry in container.get("env", []):
            source = entry.get("valueFrom", {})
            if "secretKeyRef" in source:
                value = self._cluster.secret(**source["secretKeyRef"])
            elif "fieldRef" in source:
                owner = self.template.owner["metadata"]["name"]
                told = {
                    "metadata.name": self.name,
                    "metadata.labels['batch.kubernetes.io/job-name']": owner,
                }
                value = told[source["fieldRef"]["fieldPath"]]
            else:
                value = _expanded(entry["value"], environment)
            environment[entry["name"]] = value
        return environment

    def _volume(self, name: str) -> Path:
        volumes = {volume["name"]: volume for volume in self.template.spec["volumes"]}
        claims = [
            claim["metadata"]["name"]
            for claim in self.template.owner["spec"].get("volumeClaimTemplates", [])
        ]
        volume = volumes.get(name, {})
        if name in claims or "emptyDir" in volume:
            folder = self.folder / "volumes" / name
        elif "persistentVolumeClaim" in volume:
            folder = self._cluster.folder / "claims" / volume["persistentVolumeClaim"]["claimName"]
        else:
            folder = self.folder / "volumes" / name
            folder.mkdir(parents=True, exist_ok=True)
            for file, text in self._files(volume).items():
                mounts = [m for c in self.template.containers for m in c.get("volumeMounts", [])]
                paths = {
                    m["mountPath"]: self._volume(m["name"]) for m in mounts if m["name"] != name
                }
                (folder / file).write_text(self._here(text, paths))
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _files(self, volume: Object) -> dict[str, str]:
        """What a volume of ConfigMaps has."""
        sources = [
            source["configMap"] for source in volume.get("projected", {}).get("sources", [volume])
        ]
        return {
            file: text
            for source in sources
            for file, text in self._cluster.files(source["name"]).items()
        }

    def _here(self, text: str, paths: dict[str, Path]) -> str:
        """Addresses, names and folders of the pod as they are on this machine."""
        for service, address in self._cluster.addresses():
            text = re.sub(rf"(?<![\w-])([\w-]+-0\.)?{re.escape(service)}(?![\w-])", address, text)
        text = re.sub(r"(?<![\w.])(0\.0\.0\.0|127\.0\.0\.1)(?![\w.])", self.address, text)
        folders = sorted(paths, key=len, reverse=True)
        if not folders:
            return text
        pattern = "|".join(re.escape(folder) for folder in folders)
        # A checkout may lie in a folder that a pod has too, such as /tmp.
        checkout = re.escape(str(CHECKOUT))
        return re.sub(
            rf"(?<![\w./-])(?!{checkout}(/|$))({pattern})(?=/|\b|$)",
            lambda found: str(paths[found[2]]),
            text,
        )


class LocalCluster:
    """`with LocalCluster(objects, folder) as cluster`: every process is ended at exit."""

    def __init__(self, objects: list[Object], folder: Path) -> None:
        self.folder = folder
        self.objects = objects
        self.programs = folder / "bin"
        self._pods: dict[tuple[str, int], LocalPod] = {}

    def __enter__(self) -> LocalCluster:
        self.programs.mkdir(parents=True)
        here = Path(sys.executable).parent
        for name, target in (
            ("python", here / "python"),
            ("rollcast", here / "rollcast"),
            ("redis-server", find_server()),
        ):
            script = self.programs / name
            script.write_text(f'#!/bin/sh\nexec "{target}" "$@"\n')
            script.chmod(0o755)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        running = [
            process
            for pod in self._pods.values()
            for process in pod.processes.values()
            if process.poll() is None
        ]
        for process in running:
            os.killpg(process.pid, signal.SIGTERM)
        for process in running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)

    def pod(self, role: str, index: int = 0, owner: str = "") -> LocalPod:
        """The pod of a role, made when it is first asked for; `owner`: the end of its workload's
        name.
        """
        (template,) = [
            pod
            for pod in pods(self.objects)
            if pod.role == role and pod.owner["metadata"]["name"].endswith(owner)
        ]
        key = (template.name, index)
        if key not in self._pods:
            self._pods[key] = self.make(template, f"{SUBNET}.{len(self._pods) + 2}", index)
        return self._pods[key]

    def make(self, template: PodOf, address: str, index: int) -> LocalPod:
        return LocalPod(self, template, address, index)

    def started(self) -> list[LocalPod]:
        """Every pod that was asked for; those that are asked for meanwhile may be missing."""
        return list(self._pods.values())

    def addresses(self) -> Iterator[tuple[str, str]]:
        """Service name -> address of the pod it selects, longest names first."""
        services = sorted(
            of_kind(self.objects, "Service"), key=lambda item: -len(item["metadata"]["name"])
        )
        for service in services:
            selector = service["spec"]["selector"]
            wanted = {
                key: value for key, value in selector.items() if not key.startswith(_BY_THE_JOB)
            }
            (template,) = [
                pod
                for pod in pods(self.objects)
                if wanted.items() <= pod.metadata["labels"].items()
            ]
            yield service["metadata"]["name"], self.pod(template.role).address

    def files(self, name: str) -> dict[str, str]:
        found = next(
            item for item in of_kind(self.objects, "ConfigMap") if item["metadata"]["name"] == name
        )
        data: dict[str, str] = found["data"]
        return data

    def secret(self, name: str, key: str) -> str:
        (found,) = [
            item for item in of_kind(self.objects, "Secret") if item["metadata"]["name"] == name
        ]
        return base64.b64decode(found["data"][key]).decode()


def _expanded(text: str, environment: dict[str, Any]) -> str:
    """$(NAME), as Kubernetes replaces it: unknown names stay."""
    return _VARIABLE.sub(lambda found: environment.get(found[1], found[0]), text)
