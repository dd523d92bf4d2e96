"""The rules across settings: also of settings that no file gave, as `--generators` does."""

from collections.abc import Iterable

from rollcast.config.rules import broken_rules
from rollcast.local.checks.check import Finding, Start, refusals

SETTINGS = ()


def check(start: Start) -> Iterable[Finding]:
    return refusals(
        wrong.sentence
        for wrong in broken_rules(start.config, to_start=True)
        if not any(wrong.touches(mistake) for mistake in start.mistakes)
    )
