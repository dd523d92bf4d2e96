"""The engine that a run file names."""

from collections.abc import Iterator

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.container import ContainerEngine
from rollcast.environments.containers.podman import Podman


def find_engine(settings: ContainerSettings, environment: str) -> ContainerEngine:
    """environment: its name. Raises UserError if this process has no access to the engine."""
    if settings.engine == "kubernetes":
        # Hundreds of modules, which no other engine needs
        from rollcast.environments.containers.kubernetes.engine import Kubernetes

        return Kubernetes(settings, environment)
    return Podman(settings)
