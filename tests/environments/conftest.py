"""A machine that starts containers, and the engines that do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from testkit.containers import IMAGE, our_containers, runtime, why_no_containers
from tests.environments.engines_under_test import EngineUnderTest

if TYPE_CHECKING:
    from testkit.pod_server import PodServer


@pytest.fixture(scope="session")
def podman_machine() -> None:
    """Skips a test where podman starts none, with the reason; makes the tests' image."""
    if reason := why_no_containers():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def pod_server(
    podman_machine: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PodServer]:
    pytest.importorskip("kubernetes_validate")
    from testkit.pod_server import PodServer

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
    pods = {"engine": "kubernetes", "namespace": "episodes"}
    return EngineUnderTest("kubernetes", limits | pods, lambda: set(server.pods))
