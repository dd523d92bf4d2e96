"""The rules across settings of `tasks.environments`, each once; `rules` applies them."""

import re
from collections.abc import Iterator

from rollcast.config.base import OBJECT_NAME
from rollcast.config.environments.container import ContainerSettings
from rollcast.config.environments.harbor import HarborEnvironment
from rollcast.config.environments.tool_set import McpServer, ToolSet
from rollcast.config.sentences import Contradiction, with_prefix
from rollcast.config.tasks import Tasks


def environments_are_one(tasks: Tasks) -> Iterator[Contradiction]:
    for index, environment in enumerate(tasks.environments):
        field = f"tasks.environments.{index}"
        if isinstance(environment, ToolSet):
            yield from with_prefix(field, _tools_fit(environment))
        if isinstance(environment, HarborEnvironment):
            yield from with_prefix(field, _harbor_fits(environment))


def _tools_fit(tools: ToolSet) -> Iterator[Contradiction]:
    if not tools.tools and not tools.mcp:
        yield "tools", "the model could call nothing; name tools, or servers in mcp"
    if "shell" in tools.tools and tools.profile == "compute":
        yield (
            "profile",
            "the tool shell starts processes, which this profile forbids; set it to folder or "
            "container, or take shell out of tools",
            "tools",
        )
    yield from _container_fits(tools)
    if "search" in tools.tools and tools.corpus is None:
        yield (
            "corpus",
            "the tool search looks in it; name a JSONL file, or take search out of tools",
            "tools",
        )
    if tools.corpus is not None and "search" not in tools.tools:
        yield (
            "corpus",
            "the tool search alone reads it; add search to tools, or remove corpus",
            "tools",
        )
    yield from _names_of_tools_differ(tools)
    for index, server in enumerate(tools.mcp):
        yield from with_prefix(f"mcp.{index}", _server_is_reached_once(server))


def _server_is_reached_once(server: McpServer) -> Iterator[Contradiction]:
    if server.command is None and server.url is None:
        yield (
            "command",
            "neither command nor url is given; give the one that reaches the server",
            "url",
        )
    if server.command is not None and server.url is not None:
        yield ("url", "command starts the server already; remove one of the two", "command")
    if server.token_variable is not None and server.command is not None:
        yield (
            "token_variable",
            "a server that command starts sees the variables of its generator; remove it, "
            "or name the server's url",
            "command",
        )


def _harbor_fits(harbor: HarborEnvironment) -> Iterator[Contradiction]:
    if harbor.container.image is not None:
        yield "container.image", "each task has an image of its own; remove it"
    if harbor.container.warm:
        yield "container.warm", "each task has an image of its own; remove it"
    yield from with_prefix("container", _engine_fits(harbor.container))


def _container_fits(tools: ToolSet) -> Iterator[Contradiction]:
    if tools.profile != "container":
        if tools.container is not None:
            yield (
                "profile",
                "it does not use the settings of container; set it to container, or remove those",
                "container",
            )
        return
    yield from with_prefix("container", _engine_fits(tools.container_settings))
    if tools.container_settings.warm and tools.container_settings.image is None:
        yield (
            "container.warm",
            "which image is needed next is not known; name one in image, or remove it",
            "container.image",
        )
    for number, tool in enumerate(tools.tools):
        if tool not in ("shell", "python"):
            yield (
                f"tools.{number}",
                "only shell and python run in a container; take it out of tools, or into an "
                "environment of another profile",
                "profile",
            )


def _engine_fits(container: ContainerSettings) -> Iterator[Contradiction]:
    if container.engine == "podman":
        if container.namespace is not None:
            yield "namespace", "the engine podman has no namespaces; remove it", "engine"
        return
    if container.limits == "rlimits":
        yield (
            "limits",
            "the engine kubernetes keeps limits by control groups; remove it",
            "engine",
        )
    if container.processes != ContainerSettings().processes:
        yield (
            "processes",
            "a pod has no such limit; set the kubelets' podPidsLimit, and remove it",
            "engine",
        )
    if not re.fullmatch(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", container.network, re.ASCII):
        yield (
            "network",
            "it is the value of a label of pods: use letters, digits, `.`, `_` and `-`, 63 at most",
            "engine",
        )
    if container.runtime is not None and not re.fullmatch(OBJECT_NAME, container.runtime):
        yield "runtime", "give the name of a RuntimeClass, such as gvisor", "engine"


def _names_of_tools_differ(tools: ToolSet) -> Iterator[Contradiction]:
    """The model calls a function by the last part of its place, and a server's tools by the
    server's name.
    """
    for setting, pattern, names in (
        ("tools", "tools.{}", [tool.rpartition(":")[2] for tool in tools.tools]),
        ("mcp", "mcp.{}.name", [server.name for server in tools.mcp]),
    ):
        for index, name in enumerate(names):
            if name in names[:index]:
                yield (
                    pattern.format(index),
                    f"the model calls another of {setting} {name} too; give one of them another "
                    "name",
                )
