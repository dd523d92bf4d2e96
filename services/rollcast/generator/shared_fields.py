"""The fields that two dataclasses have both: a task and its group, a rollout and a branch."""

from dataclasses import fields
from typing import Any


def shared_fields(source: Any, target_class: Any) -> dict[str, Any]:
    """The values of the source for all fields that the other class has too."""
    names = {field.name for field in fields(target_class)}
    return {
        field.name: getattr(source, field.name) for field in fields(source) if field.name in names
    }
