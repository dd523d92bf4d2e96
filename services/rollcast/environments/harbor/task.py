"""One task folder, read and checked.

task.toml  instruction.md  environment/Dockerfile  tests/test.sh  [solution/]
"""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rollcast.config.base import CONTAINER_IMAGE
from rollcast.config.errors import UserError
from rollcast.environments.containers.archives import pack_folder
from rollcast.environments.containers.errors import ContainerError

ABSENT: Mapping[str, tuple[Any, ...]] = {
    "gpus": (0,), "gpu_types": ([],), "mcp_servers": ([],), "os": ("linux",), "collect": ([],),
    "steps": ([],), "allowed_hosts": ([],), "exclude": ([],),
}  # fmt: skip
"""Values that ask for nothing, of fields that are not supported otherwise."""
CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
VARIABLE = re.compile(r"\$\{(\w+)(?::-(.*))?\}", re.DOTALL)
"""The value of the machine's variable, or what follows `:-`."""
Seconds = Annotated[float, Field(gt=0, le=1_000_000)]


class TaskPart(BaseModel):
    """A section of task.toml. Fields that it lacks here are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AgentPart(TaskPart):
    timeout_sec: Seconds | None = None
    user: str | int | None = None


class VerifierPart(TaskPart):
    timeout_sec: Seconds = 600.0
    env: dict[str, str] = {}
    user: str | int | None = None
    environment_mode: Literal["shared", "separate"] = "shared"


class HealthCheckPart(TaskPart):
    command: str
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: float = Field(default=0.0, ge=0, le=1_000_000)
    start_interval_sec: Seconds = 5.0
    retries: int = Field(default=3, ge=1, le=10_000)


class EnvironmentPart(TaskPart):
    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = Field(default=None, pattern=CONTAINER_IMAGE)
    cpus: float | None = Field(default=None, gt=0)
    memory_mb: int | None = Field(default=None, gt=0)
    storage_mb: int | None = Field(default=None, gt=0)
    env: dict[str, str] = {}
    healthcheck: HealthCheckPart | None = None
    workdir: str | None = None
    network_mode: Literal["no-network", "public"] | None = None


class ArtifactPart(TaskPart):
    source: str = Field(pattern=r"^/")
    destination: str | None = None


class TaskFile(TaskPart):
    """task.toml."""

    schema_version: str = "1.0"
    task: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    source: str | None = None
    verifier: VerifierPart = VerifierPart()
    agent: AgentPart = AgentPart()
    environment: EnvironmentPart = EnvironmentPart()
    solution: dict[str, Any] = {}
    artifacts: tuple[str | ArtifactPart, ...] = ()


@dataclass(frozen=True, slots=True)
class HarborTask:
    """A task that can be played."""

    folder: Path
    instruction: str
    file: TaskFile

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def artifacts(self) -> Iterator[str]:
        """Files and folders that tests in a container of their own get from the agent's."""
        yield "/logs/artifacts"
        for artifact in self.file.artifacts:
            yield artifact if isinstance(artifact, str) else artifact.source


def task_folders(tasks: Path) -> list[Path]:
    """The folders with a task.toml, by name. Raises UserError."""
    try:
        folders = sorted(path.parent for path in tasks.glob("*/task.toml"))
    except OSError as error:
        raise UserError(f"{tasks}: cannot be read ({error.strerror}); correct the path") from None
    if not folders:
        raise UserError(f"{tasks}: has no folder with a task.toml; name the folder of the tasks")
    return folders


def read_task(folder: Path) -> HarborTask:
    """Raises UserError: one sentence for each thing that is missing, wrong or not supported."""
    text = _read_text(folder / "task.toml")
    try:
        fields = _without_absent(_rename_fields(tomllib.loads(text)))
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, for one
        raise UserError(f"{folder / 'task.toml'}: is no TOML ({error}); correct it") from None
    sentences = [f"{folder}/{sentence}" for sentence in _unsupported_files(folder)]
    try:
        file = TaskFile.model_validate(fields)
    except ValidationError as error:
        sentences += [f"{folder / 'task.toml'}: {_sentence(detail)}" for detail in error.errors()]
        raise UserError("\n".join(sentences)) from None
    if not (folder / "tests" / "test.sh").is_file():
        sentences.append(f"{folder / 'tests/test.sh'}: is missing; it gives the reward")
    if file.environment.docker_image is None and not (folder / "environment/Dockerfile").is_file():
        sentences.append(
            f"{folder / 'environment/Dockerfile'}: is missing; write it, or set "
            "environment.docker_image in task.toml"
        )
    try:
        pack_folder(folder / "tests")
    except ContainerError as error:
        sentences.append(str(error))
    if sentences:
        raise UserError("\n".join(sentences))
    return HarborTask(folder, _without_canary(_read_text(folder / "instruction.md")), file)


def machine_variables(task: HarborTask) -> dict[str, bool]:
    """The variables of the machine that a task names, and whether it needs them."""
    needed: dict[str, bool] = {}
    for value in (*task.file.environment.env.values(), *task.file.verifier.env.values()):
        match = VARIABLE.fullmatch(value)
        if match is not None:
            needed[match[1]] = needed.get(match[1], False) or match[2] is None
    return needed


def resolve_variables(
    variables: Mapping[str, str], of_machine: Mapping[str, str]
) -> dict[str, str]:
    """Variables whose values may name those of the machine."""
    resolved = {}
    for name, value in variables.items():
        match = VARIABLE.fullmatch(value)
        resolved[name] = value if match is None else of_machine.get(match[1], match[2] or "")
    return resolved


def _read_text(path: Path) -> str:
    # The instruction is a prompt.
    max_bytes = 1 << 20
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"{path}: is no file; write it")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise UserError(f"{path}: is larger than {max_bytes >> 20} MiB; shorten it")
        return content.decode()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); write it") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not UTF-8; write it as UTF-8") from None


def _rename_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Names of earlier versions of the format."""
    if "version" in fields:
        fields.setdefault("schema_version", fields.pop("version"))
    environment = fields.get("environment")
    if isinstance(environment, dict) and "allow_internet" in environment:
        allows_internet = environment.pop("allow_internet")
        if allows_internet is not None:
            environment.setdefault("network_mode", "public" if allows_internet else "no-network")
    if isinstance(environment, dict):
        for name in ("memory", "storage"):
            if name in environment:
                environment.setdefault(f"{name}_mb", _mebibytes(environment.pop(name)))
    return fields


def _mebibytes(size: Any) -> Any:
    """A size such as 2G or 512M in mebibytes; another value stays, and is refused."""
    match = re.fullmatch(r"([0-9.]{1,20})([GMK])", str(size).strip().upper())
    if match is None or match[1].count(".") > 1 or not match[1].strip("."):
        return size
    return math.floor(float(match[1]) * {"G": 1024, "M": 1, "K": 1 / 1024}[match[2]])


def _without_absent(fields: dict[str, Any]) -> dict[str, Any]:
    known_keys: dict[str, Any] = {}
    for name, value in fields.items():
        if name in ("metadata", "task", "solution") or value not in ABSENT.get(name, ()):
            known_keys[name] = (
                _without_absent(value)
                if isinstance(value, dict) and name not in ("metadata", "task", "solution", "env")
                else value
            )
    return known_keys


def _unsupported_files(folder: Path) -> Iterator[str]:
    for name in (
        "trajectory.json",
        "environment/docker-compose.yaml",
        "tests/Dockerfile",
        "tests/docker-compose.yaml",
        "tests/.harborignore",
        ".harborignore",
    ):
        if (folder / name).exists():
            yield f"{name}: is not supported; take the task out of the folder"


def _sentence(detail: Any) -> str:
    field = ".".join(str(key) for key in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"{field} is not supported; take the task out of the folder"
    value = f" = {detail['input']!r}"[:100]
    return f"{field}{value} is not valid ({detail['msg']}); correct it, or take the task out"


def _without_canary(text: str) -> str:
    """Without the marks by which a benchmark is recognized in training data."""
    lines = text.split("\n")
    while lines and CANARY.fullmatch(lines[0].strip()):
        del lines[0]
    return "\n".join(lines).strip() + "\n"
