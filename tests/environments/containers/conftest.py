"""The engines of containers: podman itself, and pods of a stand-in cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from testkit.containers import IMAGE, our_containers, runtime
from testkit.pod_server import NAMESPACE, PodServer


@dataclass(frozen=True)
class EngineUnderTest:
    """One engine, with limits that tests reach in seconds."""

    name: str
    settings: dict[str, Any]
    names: Callable[[], set[str]]
    """Names of its containers that are there."""


@pytest.fixture(scope="session")
def pod_server(
    podman_machine: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PodServer]:
    with PodServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path_factory.mktemp("cluster"))))
        yield server


@pytest.fixture(scope="module", params=["podman", "kubernetes"])
def engine(request: pytest.FixtureRequest, podman_machine: None) -> EngineUnderTest:
    limits = {"image": IMAGE, "memory_gib": 0.0625, "disk_gib": 0.03125}
    if request.param == "podman":
        podman = {"runtime": runtime(), "processes": 32}
        return EngineUnderTest("podman", limits | podman, our_containers)
    server = request.getfixturevalue("pod_server")
    pods = {"engine": "kubernetes", "namespace": NAMESPACE}
    return EngineUnderTest("kubernetes", limits | pods, lambda: set(server.pods))
