"""The results of a replay: what agrees with the record, what does not and why, and what could not
be checked.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Part = Literal["grader", "trainer", "generator"]
State = Literal["agrees", "disagrees", "not checked"]


@dataclass(frozen=True, slots=True)
class Place:
    """A token, or a whole rollout."""

    group: int
    """Sequence of the group's task."""
    rollout: int
    """Index in the group."""
    token: int | None = None
    """Position in the completion; of an episode in the sequence."""
    sequence: int = 0
    """Number of an episode's sequence."""
    text: str = ""
    """The token in its text, between guillemets."""

    def __str__(self) -> str:
        name = f"group {self.group}, rollout {self.rollout}"
        if self.sequence:
            name += f", sequence {self.sequence}"
        if self.token is not None:
            name += f", token {self.token}"
        return f"{name}: {self.text}" if self.text else name


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison with the record."""

    part: Part
    check: str
    state: State
    num_compared: int = 0
    """Tokens, rollouts, weights or numbers that were compared."""
    num_different: int = 0
    largest: float | None = None
    """Largest difference; None = there is none, or it is no number."""
    reason: str = ""
    """Why it disagrees, or was not checked."""
    place: Place | None = None
    """Where the largest difference is."""


@dataclass(slots=True)
class ReplayReport:
    """All findings about one step."""

    step: str
    """Name of the recorded step."""
    findings: list[Finding] = field(default_factory=list)
    figures: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """By name the recorded and the replayed value."""
    counterfactual: dict[str, Any] | None = None
    """The same step under another recipe; None = not asked for."""
    tokens: list[dict[str, Any]] = field(default_factory=list)
    """With --group, its tokens."""

    def add(self, part: Part, check: str, **values: Any) -> None:
        """A comparison; it disagrees if anything is different."""
        state: State = "disagrees" if values.get("num_different") else "agrees"
        self.findings.append(Finding(part, check, state, **values))

    def not_checked(self, part: Part, check: str, reason: str) -> None:
        self.findings.append(Finding(part, check, "not checked", reason=reason))

    @property
    def disagreeing(self) -> tuple[Part, ...]:
        """The parts that disagree with the record."""
        parts = {item.part for item in self.findings if item.state == "disagrees"}
        return tuple(sorted(parts))

    def compare_number(
        self, part: Part, check: str, recorded: float, replayed: float, tolerance: float
    ) -> None:
        """`tolerance`: relative."""
        self.figures[check] = {"recorded": recorded, "replayed": replayed}
        is_same = math.isclose(recorded, replayed, rel_tol=tolerance, abs_tol=1e-9) or (
            math.isnan(recorded) and math.isnan(replayed)
        )
        self.add(
            part,
            check,
            num_compared=1,
            num_different=int(not is_same),
            largest=abs(recorded - replayed),
            reason="" if is_same else f"recorded {recorded:.9g}, replayed {replayed:.9g}",
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"disagreeing": list(self.disagreeing)}

    def in_words(self) -> list[str]:
        """The table, and below it the differences in words."""
        lines = [f"{'part':<10} {'check':<34} {'state':<12} {'compared':>9} {'differ':>7}  largest"]
        for item in self.findings:
            largest = "" if item.largest is None else f"{item.largest:.3g}"
            counts = f"{item.num_compared:>9,} {item.num_different:>7,}"
            if item.state == "not checked":
                counts = f"{'':>9} {'':>7}"
            lines.append(f"{item.part:<10} {item.check:<34} {item.state:<12} {counts}  {largest}")
        for state in ("disagrees", "not checked"):
            for item in self.findings:
                if item.state == state:
                    place = "" if item.place is None else f"; most at {item.place}"
                    lines.append(f"{state}: {item.part}, {item.check}: {item.reason}{place}")
        blamed = " and ".join(self.disagreeing)
        lines.append(
            f"step {self.step}: the record disagrees with the {blamed}"
            if blamed
            else f"step {self.step}: everything that was checked agrees with the record"
        )
        return lines
