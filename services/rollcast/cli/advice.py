"""What the commands on curves say about the rest of a budget, before anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli.output import say
from rollcast.config.errors import UserError
from rollcast.curves import amounts

if TYPE_CHECKING:
    from rollcast.curves.run_forecast import RunForecast

Budget = Annotated[
    float | None, typer.Option(help="total compute at which the run would end; default: twice the compute so far")
]
Worth = Annotated[
    float | None,
    typer.Option(help="gain in pass rate that the rest would be paid for; default: 0.02, less for a small rest"),
]
Price = Annotated[float | None, typer.Option(help="of one device-hour (one unit of the curve), in any currency")]


def advice_of(run: RunForecast, budget: float | None, worth: float | None, price: float | None) -> dict[str, Any]:
    """The advice as JSON. Raises UserError: an option is out of bounds."""
    try:
        return run.advice(budget, worth, price).to_dict()
    except ValueError as error:
        raise UserError(f"--{error}") from None


def show_advice(advice: dict[str, Any], unit: str) -> None:
    """The action, its reason, its cost, and the figures that would change it."""
    say(f"{advice['headline']}. {advice['reason']}")
    say(advice["change"])
    rest = advice["rest"]
    soon = advice["soon"]
    if 0 < soon["compute"] < rest["compute"]:
        say(f"next tenth of the budget: {_stretch(soon, unit)}")
    if rest["compute"] > 0:
        whole = "as much again" if advice["is_assumed"] else "rest of the budget"
        say(f"{whole}: {_stretch(rest, unit)}")


def _stretch(stretch: dict[str, Any], unit: str) -> str:
    money = "" if stretch["money"] is None else f" for {amounts.amount(stretch['money'])}"
    gain = "" if stretch["gain"] is None else f", gain {amounts.with_span(stretch['gain'], amounts.DIFFERENCE)}"
    return f"{amounts.amount(stretch['compute'])} {unit}{money}{gain}"
