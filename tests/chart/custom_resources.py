"""Custom resources against the schemas of their definitions, as an API server checks them: unknown
fields are wrong.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import jsonschema
import yaml

Schema = dict[str, Any]
FORMATS = jsonschema.FormatChecker(formats=())


def folder() -> Path | None:
    """Definitions of other projects' resources; none of them is part of the repository."""
    root = os.environ.get("ROLLCAST_SHARED_DATA")
    place = Path(root) / "crds" if root else None
    return place if place and place.is_dir() else None


def errors(item: dict[str, Any]) -> list[str]:
    """What the API server would complain of. Raises KeyError for a kind without a definition."""
    schema = _schemas()[item["apiVersion"], item["kind"]]
    found = jsonschema.Draft202012Validator(schema, format_checker=FORMATS).iter_errors(item)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}" for error in found]


def known() -> set[tuple[str, str]]:
    """(apiVersion, kind) of every definition that is there."""
    return set(_schemas())


@functools.cache
def _schemas() -> dict[tuple[str, str], Schema]:
    schemas = {}
    place = folder()
    for file in sorted(place.glob("*.yaml")) if place else []:
        for definition in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader):
            if not definition or definition.get("kind") != "CustomResourceDefinition":
                continue
            spec = definition["spec"]
            for version in spec["versions"]:
                schema = closed(version["schema"]["openAPIV3Schema"])
                schema["properties"] |= {"metadata": {"type": "object"}}
                schemas[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return schemas


def closed(node: Schema) -> Schema:
    """A structural schema as JSON Schema: only the fields it lists, null where it is nullable,
    numbers as strings.
    """
    result = dict(node)
    if node.get("x-kubernetes-int-or-string"):
        result = {
            key: value for key, value in result.items() if key not in ("type", "anyOf", "allOf")
        }
        result["type"] = ["integer", "string"]
    if node.get("nullable") and "type" in result:
        kinds = result["type"] if isinstance(result["type"], list) else [result["type"]]
        result["type"] = [*kinds, "null"]
    if isinstance(node.get("items"), dict):
        result["items"] = closed(node["items"])
    if isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = closed(node["additionalProperties"])
    if "properties" in node:
        result["properties"] = {name: closed(child) for name, child in node["properties"].items()}
        if not node.get("x-kubernetes-preserve-unknown-fields"):
            result.setdefault("additionalProperties", False)
    return result
