"""The rules across settings of `tasks.environments`, each once; `rules` applies them."""

import re
from collections.abc import Iterator

from rollcast.config.base import OBJECT_NAME
from rollcast.config.environments.container import ContainerSettings
from rollcast.config.environments.harbor import HarborEnvironment
from rollcast.config.environments.tool_set import ToolSet
from rollcast.config.sentences import Contradiction
from rollcast.config.tasks import Tasks


def environments_are_one(tasks: Tasks) -> Iterator[Contradiction]:
    for index, environment in enumerate(tasks.environments):
        field = f"tasks.environments.{index}"
        if isinstance(environment, ToolSet):
            yield from _tools_fit(field, environment)
        if isinstance(environment, HarborEnvironment):
            yield from _harbor_fits(field, environment)


def _tools_fit(field: str, tools: ToolSet) -> Iterator[Contradiction]:
    if not tools.tools and not tools.mcp:
        yield f"{field}.tools", "the model could call nothing; name tools, or servers in mcp"
    if "shell" in tools.tools and tools.profile == "compute":
        yield (
            f"{field}.profile",
            "the tool shell starts processes, which this profile forbids; set it to folder or "
            "container, or take shell out of tools",
            f"{field}.tools",
        )
    yield from _container_fits(field, tools)
    if "search" in tools.tools and tools.corpus is None:
        yield (
            f"{field}.corpus",
            "the tool search looks in it; name a JSONL file, or take search out of tools",
            f"{field}.tools",
        )
    if tools.corpus is not None and "search" not in tools.tools:
        yield (
            f"{field}.corpus",
            "the tool search alone reads it; add search to tools, or remove corpus",
            f"{field}.tools",
        )
    yield from _names_of_tools_differ(field, tools)
    for index, server in enumerate(tools.mcp):
        setting = f"{field}.mcp.{index}"
        if server.command is None and server.url is None:
            yield (
                f"{setting}.command",
                "neither command nor url is given; give the one that reaches the server",
                f"{setting}.url",
            )
        if server.command is not None and server.url is not None:
            yield (
                f"{setting}.url",
                "command starts the server already; remove one of the two",
                f"{setting}.command",
            )
        if server.token_variable is not None and server.command is not None:
            yield (
                f"{setting}.token_variable",
                "a server that command starts sees the variables of its generator; remove it, "
                "or name the server's url",
                f"{setting}.command",
            )


def _harbor_fits(field: str, harbor: HarborEnvironment) -> Iterator[Contradiction]:
    if harbor.container.image is not None:
        yield f"{field}.container.image", "each task has an image of its own; remove it"
    if harbor.container.warm:
        yield f"{field}.container.warm", "each task has an image of its own; remove it"
    yield from _engine_fits(f"{field}.container", harbor.container)


def _container_fits(field: str, tools: ToolSet) -> Iterator[Contradiction]:
    if tools.profile != "container":
        if tools.container is not None:
            yield (
                f"{field}.profile",
                "it does not use the settings of container; set it to container, or remove those",
                f"{field}.container",
            )
        return
    yield from _engine_fits(f"{field}.container", tools.container_settings)
    if tools.container_settings.warm and tools.container_settings.image is None:
        yield (
            f"{field}.container.warm",
            "which image is needed next is not known; name one in image, or remove it",
            f"{field}.container.image",
        )
    for number, tool in enumerate(tools.tools):
        if tool not in ("shell", "python"):
            yield (
                f"{field}.tools.{number}",
                "only shell and python run in a container; take it out of tools, or into an "
                "environment of another profile",
                f"{field}.profile",
            )


def _engine_fits(field: str, container: ContainerSettings) -> Iterator[Contradiction]:
    engine = f"{field}.engine"
    if container.engine == "podman":
        if container.namespace is not None:
            yield f"{field}.namespace", "the engine podman has no namespaces; remove it", engine
        return
    if container.limits == "rlimits":
        yield (
            f"{field}.limits",
            "the engine kubernetes keeps limits by control groups; remove it",
            engine,
        )
    if container.processes != ContainerSettings().processes:
        yield (
            f"{field}.processes",
            "a pod has no such limit; set the kubelets' podPidsLimit, and remove it",
            engine,
        )
    if not re.fullmatch(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", container.network, re.ASCII):
        yield (
            f"{field}.network",
            "it is the value of a label of pods: use letters, digits, `.`, `_` and `-`, 63 at most",
            engine,
        )
    if container.runtime is not None and not re.fullmatch(OBJECT_NAME, container.runtime):
        yield f"{field}.runtime", "give the name of a RuntimeClass, such as gvisor", engine


def _names_of_tools_differ(field: str, tools: ToolSet) -> Iterator[Contradiction]:
    """The model calls a function by the last part of its place, and a server's tools by the
    server's name.
    """
    for setting, place, names in (
        ("tools", "tools.{}", [tool.rpartition(":")[2] for tool in tools.tools]),
        ("mcp", "mcp.{}.name", [server.name for server in tools.mcp]),
    ):
        for index, name in enumerate(names):
            if name in names[:index]:
                yield (
                    f"{field}.{place.format(index)}",
                    f"the model calls another of {setting} {name} too; give one of them another "
                    "name",
                )
