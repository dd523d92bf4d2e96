"""The table of clients in docs/episodes.md: their pins, and what `benchmarks.clients` saw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.clients.table import CLIENTS, SETTINGS_BY_PACKAGE, Client
from documents.tables import table

RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "clients.json"
BEGIN = "<!-- Written by `python -m documents` from benchmarks/results/clients.json. -->\n"
END = "<!-- Written until here. -->\n"
DIALECTS = {
    "chat": "`chat/completions`",
    "responses": "`responses`",
    "messages": "`messages`",
}


def with_clients_table(page: str) -> str:
    """A page with the present table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + clients_table() + END + after


def clients_table() -> str:
    """A row for each list of packages."""
    seen = {row["client"]: row for row in json.loads(RESULT.read_text())["figures"]["rows"]}
    packages = dict.fromkeys(client.package for client in CLIENTS)
    return table(
        ("client", "API", "to set", "seen"),
        (
            _row([client for client in CLIENTS if client.package == package], seen)
            for package in packages
        ),
    )


def _row(variants: list[Client], seen: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    return (
        ", ".join(variants[0].packages),
        ", ".join(DIALECTS[dialect] for dialect in dict.fromkeys(v.dialect for v in variants)),
        SETTINGS_BY_PACKAGE[variants[0].package],
        "; ".join(_seen(variant, seen.get(variant.name)) for variant in variants),
    )


def _seen(variant: Client, row: Mapping[str, Any] | None) -> str:
    """The result of one variant, after the part of its name that is not the package's."""
    _, _, name = variant.name.partition(", ")
    prefix = f"{name}: " if name else ""
    if row is None or "failed" in row or row["packages"] != list(variant.packages):
        return f"{prefix}not played"
    parts = [f"{row['turns']} turns", f"{row['tool_calls']} calls"]
    for field, words in (
        ("refused", "requests refused"),
        ("replaced", "settings replaced"),
        ("untrained_tokens", "tokens not trained"),
    ):
        if row[field]:
            parts.append(f"{int(sum(row[field].values()))} {words}")
    parts += [
        f"{int(count)} {reason} histories" for reason, count in row["further_sequences"].items()
    ]
    return prefix + ", ".join(parts)
