"""The engine that a run file names."""

from collections.abc import Iterator
from importlib.util import find_spec

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.container import ContainerEngine
from rollcast.environments.containers.podman import Podman


def find_engine(settings: ContainerSettings, environment: str) -> ContainerEngine:
    """environment: its name."""
    if settings.engine == "kubernetes":
        # Hundreds of modules, which no other engine needs
        from rollcast.environments.containers.pods.engine import Kubernetes

        return Kubernetes(settings, environment)
    return Podman(settings)


def missing_for_containers(
    settings: ContainerSettings, environment: str, field: str
) -> Iterator[str]:
    """Sentences on what containers of an environment lack; its image is pulled and started once."""
    if settings.engine == "kubernetes" and find_spec("kubernetes") is None:
        yield (
            f"{field}.engine = kubernetes: the package kubernetes is not installed; install "
            "rollcast[containers]"
        )
        return
    engine = find_engine(settings, environment)
    lacking = list(engine.missing(field))
    yield from lacking
    if settings.image is not None and not lacking:
        yield from engine.missing_images({settings.image: f"{field}.image"}, field)
