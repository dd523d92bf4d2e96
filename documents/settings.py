"""Every setting of the run file, from the schema that reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from documents.tables import table
from rollcast.config.schema import RunConfig
from rollcast.config.sweep import SweepFile

Node = dict[str, Any]
HEAD = ("setting", "default", "meaning")
INTRODUCTION = """# Settings

Every setting of a run file, made from the code that reads it, and at the end those of a
[sweep file](#a-sweep-file). `rollcast config schema` prints a run file's as a JSON schema. A
setting without a default must be given. If a group has several kinds, the kind follows the name.

"""
_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}


def settings_page() -> str:
    sections = _sections(RunConfig.model_json_schema(), "The run itself")
    sweep = _sections(SweepFile.model_json_schema(), "A sweep file", rows_of_groups=True)
    return f"{INTRODUCTION}{sections}{sweep.rstrip()}\n"


def _sections(schema: Node, title: str, *, rows_of_groups: bool = False) -> str:
    """`rows_of_groups`: in the table of the title, without headings of their own."""
    top: list[tuple[str, str, str]] = []
    groups = ""
    for name, node in schema["properties"].items():
        rows = list(_rows(schema, name, node, required=name in schema.get("required", ())))
        if len(rows) == 1 or rows_of_groups:
            top += [row for row in rows if not row[0].startswith("`local.")]
        else:
            groups += f"## {name}\n\n" + table(HEAD, rows)
    return f"## {title}\n\n{table(HEAD, top)}{groups}"


def _rows(
    schema: Node, name: str, node: Node, *, required: bool, kind: str = ""
) -> Iterator[tuple[str, str, str]]:
    """The rows of a setting and of its fields. `kind`: that of its group."""
    variants = list(_variants(schema, node))
    groups = [variant for variant in variants if "properties" in variant]
    shown = f"`{name}`" + (f" ({kind})" if kind else "")
    if not groups:
        yield (
            shown,
            _default(node, required),
            f"{node.get('description', '')} {_allowed(variants)}".strip(),
        )
        return
    if "description" in node or len(groups) > 1:
        nothing = (
            ""
            if "default" not in node or node["default"] not in (None, [])
            else f"`{_said(node['default'])}`"
        )
        kinds = [
            variant["properties"]["kind"]["const"]
            for variant in groups
            if "kind" in variant["properties"]
        ]
        one_of = f" Kinds: {', '.join(f'`{name}`' for name in kinds)}." if len(kinds) > 1 else ""
        yield shown, nothing, node.get("description", "") + one_of
    inside = (
        f"{name}[]"
        if any(variant.get("type") == "array" for variant in _options(schema, node))
        else name
    )
    for variant in groups:
        own = variant["properties"].get("kind", {}).get("const", "") if len(groups) > 1 else kind
        for field, value in variant["properties"].items():
            if field != "kind":
                needed = field in variant.get("required", ())
                yield from _rows(schema, f"{inside}.{field}", value, required=needed, kind=own)


def _options(schema: Node, node: Node) -> list[Node]:
    """The possible schemas of a setting, with references resolved."""
    if "$ref" in node:
        return _options(schema, schema["$defs"][node["$ref"].rsplit("/", 1)[1]])
    for many in ("anyOf", "oneOf", "allOf"):
        if many in node:
            return [option for item in node[many] for option in _options(schema, item)]
    return [node]


def _variants(schema: Node, node: Node) -> Iterator[Node]:
    """`_options`, with the items of a list in place of the list."""
    for option in _options(schema, node):
        if option.get("type") == "array" and isinstance(option.get("items"), dict):
            yield from _variants(schema, option["items"])
        else:
            yield option


def _default(node: Node, required: bool) -> str:
    return "required" if required else f"`{_said(node.get('default'))}`"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _said(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _allowed(options: list[Node]) -> str:
    """Bounds and choices, as a sentence."""
    said = []
    for option in options:
        if "enum" in option:
            said.append("one of " + ", ".join(f"`{_said(value)}`" for value in option["enum"]))
        bounds = [
            f"{words} {_number(option[name])}" for name, words in _BOUNDS.items() if name in option
        ]
        if bounds:
            said.append(" and ".join(bounds))
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}." if text else ""
