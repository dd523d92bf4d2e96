"""The tables of docs/performance.md, from the results of the benchmarks that it names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from documents.tables import table
from testkit.record import RESULTS

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN = "<!-- Written by `python -m documents` from benchmarks/results. -->\n"
END = "<!-- Written until here. -->\n"
HEAD = ("what", "measured", "by", "machine, date, commit")
TRANSPORTS = {"nccl": "NCCL", "gloo": "gloo"}
Figures = dict[str, Any]


class Row(NamedTuple):
    """One thing that a benchmark measured."""

    subject: str
    result: str
    """Name of its file, without `.json`."""
    figure: Callable[[Figures], str]


def _steps(figures: Figures) -> str:
    seconds = [pair["rollcast"] for pair in figures["seconds_a_step"]]
    return (
        f"{median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}, {len(seconds)} runs)"
    )


def _range(values: list[float], unit: str) -> str:
    return f"{min(values):.3g} to {max(values):.3g} {unit}, {len(values)} runs"


def _kept(figures: Figures) -> str:
    phase = figures["immediate_calls_after"]
    kept, rebuilt = phase["kv_kept_tokens"], phase["kv_rebuilt_tokens"]
    return f"{kept / (kept + rebuilt):.1%} of {kept + rebuilt:,} tokens"


def _grown(figures: Figures) -> str:
    rows = figures.get("rows", [figures])
    return "; ".join(
        f"{row['lanes']} lanes: {max(row['host_mib_grown'].values()):.0f} MiB after "
        f"{sum(row['events'].values())}"
        for row in rows
    )


def _back(figures: Figures) -> str:
    rows = figures.get("rows", [figures])
    seconds = [row["seconds_until_all_are_members_again"] for row in rows]
    return "; ".join(f"{one['kill']:.1f} s killed, {one['freeze']:.1f} s frozen" for one in seconds)


def _learner(figures: Figures) -> str:
    return "; ".join(
        f"{row['variant']}: {row['tokens_per_second']:,.0f} tokens/s, MFU {row['mfu']:.3f}"
        for row in figures["rows"]
        if "mfu" in row
    )


def _published(figures: Figures) -> str:
    return "; ".join(
        f"{row['gigabytes_per_second']:.1f} GB/s over {TRANSPORTS[row['transport']]}"
        for row in figures["rows"]
    )


TWO_CORES = (
    Row("a step of the demo's task, 16 x 8 completions", "step", _steps),
    Row(
        "a streamed step, over the slower of generation and training alone",
        "pipeline",
        lambda figures: f"{figures['median_step_over_slower_part']:.2f} times",
    ),
    Row(
        "a step without overlap (k = 0), over a streamed one",
        "pipeline",
        lambda figures: f"{figures['median_synchronous_step_over_pipeline_step']:.2f} times",
    ),
    Row(
        "generation during training, over bare vLLM",
        "pipeline",
        lambda figures: f"{figures['median_generation_over_bare_vllm']:.2f} times",
    ),
    Row(
        "from the command to the first step",
        "start_up",
        lambda figures: _range([one["seconds"]["first step"] for one in figures["starts"]], "s"),
    ),
    Row(
        "the demo, to its end",
        "demo",
        lambda figures: _range([seed["seconds"] for seed in figures["seeds"]], "s"),
    ),
    Row("KV of earlier turns that later turns of an episode find", "episodes", _kept),
    Row(
        "gradings of programs, a second and core",
        "sandbox",
        lambda figures: f"{figures['throughput']['gradings_per_second_and_core']:.0f}",
    ),
    Row("until all are members again after a fault, weights over gloo", "wire_faults", _back),
    Row("growth of host memory by these faults, gloo", "wire_faults", _grown),
    Row(
        "forecasts of 100 runs",
        "forecaster",
        lambda figures: (
            f"{figures['share_of_a_core']:.3f} of a core, {figures['memory_mb']:.0f} MB"
        ),
    ),
    Row(
        "`rollcast fit` of a million rows, CSV",
        "front_door",
        lambda figures: (
            f"{figures['million_rows_csv_seconds']:.1f} s, "
            f"{figures['million_rows_csv_megabytes']} MB"
        ),
    ),
)
ONE_CARD = (
    Row(
        "the demo's task: trained tokens",
        "gpu-system",
        lambda figures: f"{figures['trained_tokens_per_second']:,.0f} tokens/s",
    ),
    Row(
        "from the command to the first step",
        "gpu-system",
        lambda figures: f"{figures['seconds_to_first_step']:.0f} s",
    ),
    Row(
        "a killed generator",
        "gpu-system",
        lambda figures: (
            f"back after {figures['seconds_until_rejoined']:.0f} s, "
            f"{figures['steps_meanwhile']} steps meanwhile"
        ),
    ),
    Row("optimizer steps, Qwen3 0.6B, up to 4,149 tokens", "gpu-learner-0.6b", _learner),
    Row("1.19 GB of weights to a generator on the same card", "gpu-publish", _published),
    Row("until all are members again after a fault, weights over NCCL", "gpu-wire-faults", _back),
    Row("growth of host memory by these faults, NCCL", "gpu-wire-faults", _grown),
)
TABLES = {"On two cores": TWO_CORES, "On one card": ONE_CARD}


def with_performance_tables(page: str) -> str:
    """A page with the present tables between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + "".join(_sections()) + END + after


def _sections() -> Iterator[str]:
    for heading, rows in TABLES.items():
        yield f"## {heading}\n\n" + table(HEAD, map(_cells, rows))


def _cells(row: Row) -> tuple[str, ...]:
    loaded = json.loads((RESULTS / f"{row.result}.json").read_text())
    figures, machine = loaded["figures"], loaded["machine"]
    processor = figures.get("card", {}).get("name") or f"{machine['processor']}, 2 cores"
    commit = machine["commit"].partition("-")[0][:7]
    return (
        row.subject,
        row.figure(figures),
        f"`benchmarks.{row.result.replace('gpu-', 'gpu ', 1)}`",
        f"{processor}, {loaded['measured_at'][:10]}, {commit}",
    )
