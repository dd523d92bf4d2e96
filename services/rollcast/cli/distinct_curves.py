"""Curves that are compared: each once, each with a name of its own, all in one unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.scaling.law.curve import Curve


def with_distinct_names(source_curves: Sequence[tuple[str, Curve]]) -> list[Curve]:
    """Curves of one name, as of the evaluations.jsonl of two runs, are named by their whole source.

    `source_curves`: source and curve. Of a source that holds several runs, the name of the run
    stays in it.
    """
    count = Counter(curve.name for _, curve in source_curves)
    of_source = Counter(source for source, _ in source_curves)
    curves = []
    for source, curve in source_curves:
        name = curve.name
        if count[name] > 1:
            name = source if of_source[source] == 1 else f"{source}:{name}"
        curves.append(replace(curve, name=name))
    return curves


def refuse_twice(source_curves: Sequence[tuple[str, Curve]], *, beginnings: bool) -> None:
    """A run that is given twice would count as two.

    `beginnings`: so would one and its beginning. Raises UserError.
    """
    for (first_source, curve), (source, other_curve) in combinations(source_curves, 2):
        are_prefixes = _begins(curve, other_curve), _begins(other_curve, curve)
        if all(are_prefixes):
            raise UserError(
                f"{source}: {other_curve.name} is the same run as in {first_source}; give each run "
                "once"
            )
        # A single evaluation may agree by chance.
        if beginnings and any(are_prefixes) and min(len(curve), len(other_curve)) > 1:
            old, name, new = (
                (first_source, curve.name, source)
                if are_prefixes[0]
                else (source, other_curve.name, first_source)
            )
            raise UserError(
                f"{old}: {name} is the beginning of the run in {new}; give the newer file only"
            )


def refuse_two_units(source_curves: Sequence[tuple[str, Curve]]) -> None:
    """Steps of one run and tokens of another are no common axis. Raises UserError."""
    (first, curve), *remaining_curves = source_curves
    for source, other_curve in remaining_curves:
        if other_curve.unit != curve.unit:
            raise UserError(
                f"{source}: counts compute in {other_curve.unit}, {first} in {curve.unit}; choose "
                "one unit with --compute, or with --seconds and --devices"
            )


def _begins(curve: Curve, longer_curve: Curve) -> bool:
    """Whether the points of `longer_curve` begin with those of `curve`."""
    pairs = (longer_curve.compute, curve.compute), (longer_curve.pass_rate, curve.pass_rate)
    return all(longer.tobytes().startswith(shorter.tobytes()) for longer, shorter in pairs)
