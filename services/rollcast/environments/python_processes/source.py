"""The part of the run file that a fork server of environments gets: no command, address or token of
an MCP server.

Its forks run code of a user, or of a model: a secret that was never sent cannot be read there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a tenth of a second less for each fork server
    from rollcast.config.environments.own_class import ClassEnvironment
    from rollcast.config.environments.settings import Profile
    from rollcast.config.environments.tool_set import ToolSet


@dataclass(frozen=True, slots=True)
class PythonSource:
    """The code of one environment, and the profile it runs under."""

    name: str
    profile: Profile
    call_seconds: float
    code: str | None = None
    """The class. None = a set of tools."""
    tools: tuple[str, ...] = ()
    corpus: Path | None = None

    @classmethod
    def select(cls, settings: ClassEnvironment | ToolSet) -> PythonSource:
        """The part of the settings that the environment's processes need."""
        if settings.kind == "class":
            return cls(settings.name, settings.profile, settings.call_seconds, code=settings.code)
        assert settings.profile != "container", "a container runs these tools itself"
        return cls(
            settings.name,
            settings.profile,
            settings.call_seconds,
            tools=settings.tools,
            corpus=settings.corpus,
        )

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), default=str).encode()

    @classmethod
    def from_json(cls, content: bytes) -> PythonSource:
        fields = json.loads(content)
        corpus = fields.pop("corpus")
        return cls(
            **{**fields, "tools": tuple(fields["tools"])},
            corpus=None if corpus is None else Path(corpus),
        )
