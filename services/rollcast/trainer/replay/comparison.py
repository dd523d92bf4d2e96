"""The results of a replay: what agrees with the record, what does not and why, and what could not
be checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

Component = Literal["grader", "trainer", "generator"]
State = Literal["agrees", "disagrees", "not checked"]


@dataclass(frozen=True, slots=True)
class TokenLocation:
    """A token, or a whole rollout."""

    group: int
    """Sequence of the group's task."""
    rollout: int
    """Index in the group."""
    sequence: int
    """Number of the sequence in the rollout: 0, or n of an episode's branch n - 1."""
    token: int | None
    """Position in the sequence; None = the whole rollout."""
    text: str
    """The token in its text, between guillemets. Empty without a token."""

    def __str__(self) -> str:
        name = f"group {self.group}, rollout {self.rollout}"
        if self.sequence:
            name += f", sequence {self.sequence}"
        if self.token is not None:
            name += f", token {self.token}"
        return f"{name}: {self.text}" if self.text else name


@dataclass(frozen=True, slots=True)
class RecordCheck:
    """A part of the record, and its replay."""

    component: Component
    check: str
    state: State
    num_compared: int
    """Tokens, rollouts, weights or numbers that were compared."""
    num_different: int
    largest: float | None
    """Largest difference of two numbers; None = numbers were not compared."""
    reason: str = ""
    """Why it disagrees, or was not checked."""
    location: TokenLocation | None = None
    """The token or rollout with the largest difference."""


@dataclass(slots=True)
class ReplayReport:
    """All comparisons about one step."""

    step: str
    """Name of the recorded step."""
    comparisons: list[RecordCheck] = field(default_factory=list)
    figures: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """By name the recorded and the replayed value."""
    counterfactual: dict[str, Any] | None = None
    """The figures of the step under another recipe; None = not asked for."""
    tokens: list[dict[str, Any]] = field(default_factory=list)
    """With --group, its tokens."""

    def add(
        self,
        component: Component,
        check: str,
        num_compared: int,
        num_different: int,
        reason: str,
        location: TokenLocation | None = None,
        largest: float | None = None,
    ) -> None:
        """A comparison that was made; reason and location count if anything is different."""
        counts = (num_compared, num_different, largest)
        if num_different:
            result = RecordCheck(component, check, "disagrees", *counts, reason, location)
        else:
            result = RecordCheck(component, check, "agrees", *counts)
        self.comparisons.append(result)

    def compare(
        self,
        component: Component,
        check: str,
        pairs: Sequence[tuple[float, float]],
        tolerance: float,
        locations: Sequence[TokenLocation] = (),
    ) -> None:
        """Numbers as they were recorded and as they were replayed. `tolerance`: relative to the
        largest of them. `locations`: of each.
        """
        recorded, replayed = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        scale = max(np.abs(recorded[np.isfinite(recorded)]).max(initial=0.0), 1e-9)
        with np.errstate(invalid="ignore"):  # inf - inf
            gaps = np.where(recorded == replayed, 0.0, np.abs(recorded - replayed))
        gaps = np.where(np.isnan(recorded) & np.isnan(replayed), 0.0, gaps)
        if len(pairs) == 1:
            self.figures[check] = {"recorded": pairs[0][0], "replayed": pairs[0][1]}
        reason = ""
        location = None
        if pairs:
            worst = int(np.argmax(gaps))
            reason = f"recorded {pairs[worst][0]:.9g}, replayed {pairs[worst][1]:.9g}"
            location = locations[worst] if locations else None
        num_different = int((~(gaps <= tolerance * scale)).sum())
        largest = float(gaps.max(initial=0.0))
        self.add(component, check, len(gaps), num_different, reason, location, largest)

    def not_checked(self, component: Component, check: str, reason: str) -> None:
        self.comparisons.append(RecordCheck(component, check, "not checked", 0, 0, None, reason))

    @property
    def disagreeing(self) -> tuple[Component, ...]:
        """The components that disagree with the record."""
        components = {item.component for item in self.comparisons if item.state == "disagrees"}
        return tuple(sorted(components))

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"disagreeing": list(self.disagreeing)}

    def in_words(self) -> list[str]:
        """The table, and below it the differences in words."""
        lines = [
            f"{'component':<10} {'check':<34} {'state':<12} {'compared':>9} {'differ':>7}  largest"
        ]
        for item in self.comparisons:
            largest = "" if item.largest is None else f"{item.largest:.3g}"
            counts = f"{item.num_compared:>9,} {item.num_different:>7,}"
            if item.state == "not checked":
                counts = " " * 17
            lines.append(
                f"{item.component:<10} {item.check:<34} {item.state:<12} {counts}  {largest}"
            )
        for state in ("disagrees", "not checked"):
            for item in self.comparisons:
                if item.state == state:
                    sentence = f"{state}: {item.component}, {item.check}: {item.reason}"
                    if item.location is not None:
                        sentence += f"; most at {item.location}"
                    lines.append(sentence)
        conclusion = "everything that was checked agrees with the record"
        if self.disagreeing:
            conclusion = f"the record disagrees with the {' and '.join(self.disagreeing)}"
        return [*lines, f"step {self.step}: {conclusion}"]
