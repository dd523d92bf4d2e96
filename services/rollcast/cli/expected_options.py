"""Options by which a command knows what to expect of a run on GPUs, before it is measured."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli.curve_options import with_group
from rollcast.cli.output import say

if TYPE_CHECKING:
    from rollcast.memory.plan import MemoryPlan
    from rollcast.throughput.balance import Balance


@dataclass(frozen=True)
class Expected:
    """Rates and lengths; None = the default of `rollcast.throughput.assumptions`."""

    generators: Annotated[
        int | None, typer.Option(min=1, max=4_096, help="generators; default local.generators")
    ] = None
    mean_tokens: Annotated[
        float | None,
        typer.Option(
            help="mean tokens of a completion; default 0.3 of recipe.max_completion_tokens"
        ),
    ] = None
    # 0.95: with more filtered groups hardly anything is trained, and no rate is worth predicting.
    filtered: Annotated[
        float | None, typer.Option(min=0, max=0.95, help="share of the groups without an advantage")
    ] = None
    mfu: Annotated[
        float | None,
        typer.Option(min=0.01, max=1.0, help="the trainer's model FLOPs over the GPU's peak"),
    ] = None
    card: Annotated[str | None, typer.Option(help="GPU, such as H100; default by its memory")] = (
        None
    )
    grace: Annotated[
        float | None,
        typer.Option(min=1, help="seconds that a trainer's pod has from SIGTERM to SIGKILL"),
    ] = None

    def balance(self, plan: MemoryPlan) -> Balance | None:
        """The prediction; None without GPUs. Raises UserError."""
        from rollcast.throughput.assumptions import Assumptions
        from rollcast.throughput.balance import predict
        from rollcast.throughput.card import card_named, find_card

        if plan.device.kind == "cpu":
            return None
        card = find_card(plan.device.num_bytes) if self.card is None else card_named(self.card)
        usual = Assumptions()
        assumptions = Assumptions(
            mean_tokens=self.mean_tokens,
            flops_utilization=self.mfu,
            filtered_share=usual.filtered_share if self.filtered is None else self.filtered,
        )
        return predict(plan, card, self.generators or plan.generators or 1, assumptions)

    def cautions(self, plan: MemoryPlan) -> Iterator[str]:
        """Sentences on what plan and prediction find wrong."""
        from rollcast.memory.verdict import warnings
        from rollcast.throughput.ending import short_grace
        from rollcast.throughput.sentences import full_cache

        balance = self.balance(plan)
        if balance is None:
            yield from warnings(plan)
            return
        yield from full_cache(balance)
        if self.grace is not None:
            yield from short_grace(balance, self.grace)


def prediction_report(balance: Balance | None) -> dict[str, Any]:
    """Parts of an answer: figures and assumptions of the prediction.

    None = nothing was predicted.
    """
    from rollcast.throughput.sentences import assumption_lines, in_one_line

    if balance is None:
        return {"predicted": None, "predicted_idle": "", "assumed": []}
    return {
        "predicted": balance.as_json(),
        "predicted_idle": in_one_line(balance),
        "assumed": list(assumption_lines(balance)),
    }


def show(answer: dict[str, Any]) -> None:
    """Print these parts; without a prediction nothing."""
    if answer["predicted"] is None:
        return
    say(answer["predicted_idle"])
    for line in answer["assumed"]:
        say(f"assumed: {line}")


with_expected = functools.partial(with_group, "expected", Expected)
