"""Base class of all settings: unknown keys are refused, numbers are finite, `~` is the home folder.

Values never change after loading.
"""

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator

RUN_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
DATASET_NAME = r"^[^:/\x00-\x1f\x7f]{1,100}$"
CURVE_NAME = r"^[^/]{1,200}$"
CONDITION = r"^[^=]+="
NAMESPACE = r"^[a-z0-9-]{0,63}$"
REDIS_SCOPE = r"^[a-z0-9./-]{0,200}$"
FUNCTION = r"^(.+\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*$"
SHA256 = r"^[0-9a-f]{64}$"
CUSTOM_FUNCTION = r"^((.+\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*|[A-Za-z_][-\w]*)$"
OWN_CLASS = r"^((?:.+\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*|[A-Za-z_][-\w]*)$"
TOOL_NAME = r"^[A-Za-z_][\w-]{0,63}$"
SHIPPED_TOOLS = ("python", "calculator", "shell", "search")
TOOL = rf"^((.+\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*|{'|'.join(SHIPPED_TOOLS)})$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,199}$"
CONTAINER_IMAGE = r"^[a-z0-9][A-Za-z0-9_./@:-]{0,499}$"
CONTAINER_NAME = r"^[A-Za-z0-9/][A-Za-z0-9_./:,=-]{0,199}$"
TASKSET = r"^[A-Za-z0-9][\w./@-]{0,199}$"
WEB_ADDRESS = r"^https?://[^\s/@?#]+([/?#]\S*)?$"
"""Without user and password: addresses are said aloud, in logs as well."""
IN_WORDS = {
    RUN_NAME: (
        "needs lower-case letters, digits and hyphens, 63 at most, and no hyphen at either end"
    ),
    OBJECT_NAME: (
        "needs lower-case letters, digits, hyphens and dots, 253 at most, and a letter or digit at "
        "either end"
    ),
    DATASET_NAME: "needs 1 to 100 characters, neither `:` nor `/` among them",
    CURVE_NAME: "needs 1 to 200 characters, no `/` among them",
    CONDITION: "needs COLUMN=VALUE",
    NAMESPACE: "needs lower-case letters, digits and hyphens, 63 at most",
    REDIS_SCOPE: "needs lower-case letters, digits, hyphens, dots and slashes, 200 at most",
    FUNCTION: "needs FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION",
    CUSTOM_FUNCTION: (
        "needs FILE.py:FUNCTION, PACKAGE.MODULE:FUNCTION or the name of an entry point"
    ),
    SHA256: "needs 64 hexadecimal digits",
    OWN_CLASS: "needs FILE.py:CLASS, PACKAGE.MODULE:CLASS or the name of an entry point",
    TOOL_NAME: "needs 1 to 64 letters, digits, `_` and `-`, the first of them a letter or `_`",
    TOOL: f"needs FILE.py:FUNCTION, PACKAGE.MODULE:FUNCTION or one of {', '.join(SHIPPED_TOOLS)}",
    VARIABLE: "needs the name of an environment variable: letters, digits and `_`, no digit first",
    CONTAINER_IMAGE: "needs the name of an image, such as docker.io/library/debian:12",
    CONTAINER_NAME: "needs letters, digits, `.`, `_`, `/` and `-`, no `-` first",
    TASKSET: "needs the id of a taskset, as vf-eval takes it",
    WEB_ADDRESS: "needs http://HOST or https://HOST, without user and password",
}
"""Requirement of each pattern, as the end of a sentence."""


FolderOrName = Annotated[str, AfterValidator(os.path.expanduser)]
"""A folder, or a name that stands for one on the hub."""


class Settings(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_default=True,
    )

    @field_validator("*")
    @classmethod
    def _at_home(cls, value: Any) -> Any:
        """No shell reads a run file. The path of an unknown user (`~name`) stays as written."""
        return Path(os.path.expanduser(value)) if isinstance(value, Path) else value
