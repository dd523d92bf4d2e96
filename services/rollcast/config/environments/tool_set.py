"""Settings of tools without an environment around them: each call stands alone."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rollcast.config.base import TOOL, TOOL_NAME, VARIABLE, WEB_ADDRESS, Settings
from rollcast.config.environments.container import ContainerSettings
from rollcast.config.environments.settings import EnvironmentSettings, Profile


class McpServer(Settings):
    """A server of the Model Context Protocol. It is trusted: no profile contains it. One that is
    started here runs with everything that you can do, and what the model writes reaches it."""

    name: Annotated[str, Field(pattern=TOOL_NAME)]
    """Put before the names of its tools: `read` of the server `files` is `files_read`."""
    command: Annotated[tuple[str, ...], Field(min_length=1, max_length=256)] | None = None
    """Program and arguments of a server that speaks over its standard input and output. None =
    `url` names one."""
    url: Annotated[str, Field(pattern=WEB_ADDRESS)] | None = None
    """Address of a server that speaks streamable HTTP. None = `command` starts one."""
    token_variable: Annotated[str, Field(pattern=VARIABLE)] | None = None
    """Environment variable of the generators that holds the bearer token to present to `url`. None
    = none is presented."""


class ToolSet(EnvironmentSettings):
    gives_reward: ClassVar[bool] = False

    kind: Literal["tools"] = "tools"
    """Functions that the model may call; the verifier of the data set rewards the episode."""
    tools: Annotated[tuple[Annotated[str, Field(pattern=TOOL)], ...], Field(max_length=64)] = ()
    """Functions of your own as `./tools.py:search`, and the shipped tools `python`, `calculator`,
    `shell`, `search`."""
    mcp: Annotated[tuple[McpServer, ...], Field(max_length=16)] = ()
    """MCP servers whose tools are offered too."""
    corpus: Path | None = None
    """JSONL file that `search` looks in, one object with `text` (and `title`) a line. Needed by
    that tool. None = it is not among the tools."""
    profile: Profile | Literal["container"] = "compute"
    """Permissions of the functions (docs/sandbox.md). `shell` needs `folder`, `container` or
    `trusted`. `container` runs `shell` and `python` in a fresh container for each episode."""
    container: ContainerSettings | None = None
    """The container of profile `container`. None = the defaults, with an image from each row."""
    answer_characters: Annotated[int, Field(ge=100, le=1_000_000)] = 8_000
    """Longest answer to the model. The middle of a longer one is cut out, and the answer says so.
    8,000 characters are about 2,000 tokens."""

    @property
    def container_settings(self) -> ContainerSettings:
        """Those of profile `container`."""
        return self.container or ContainerSettings()

    @property
    def starts_pods(self) -> bool:
        return self.profile == "container" and self.container_settings.engine == "kubernetes"
