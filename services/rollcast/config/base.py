"""What every settings class shares: unknown keys are refused, numbers are finite, values never change after loading."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

RUN_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
DATASET_NAME = r"^[^:/\x00-\x1f\x7f]{1,100}$"
CURVE_NAME = r"^[^/]{1,200}$"
CONDITION = r"^[^=]+="
IN_WORDS = {
    RUN_NAME: "needs lower-case letters, digits and hyphens, 63 at most, and no hyphen at either end",
    OBJECT_NAME: "needs lower-case letters, digits, hyphens and dots, 253 at most, and a letter or digit at either end",
    DATASET_NAME: "needs 1 to 100 characters, neither `:` nor `/` among them",
    CURVE_NAME: "needs 1 to 200 characters, no `/` among them",
    CONDITION: "needs COLUMN=VALUE",
}
"""What a text must look like, as a sentence says it."""


class Settings(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True, validate_default=True
    )
