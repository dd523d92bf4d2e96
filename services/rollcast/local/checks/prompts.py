"""Reads the run's data, and says which rows are left out."""

from collections.abc import Iterable

from rollcast.config.rules_versions import contaminated_in_words
from rollcast.local.checks.check import Finding, Start, warnings
from rollcast.runfolder.rules import find_starting_rules
from rollcast.tasks.near_duplicates import near_duplicates
from rollcast.tasks.prompts import PromptSplit, check_prompts, load
from rollcast.tasks.same_prompts import check_same_prompts

SETTINGS = ("tasks", "recipe.prompts_per_step")
_LEFT_OUT = {
    "duplicate": "ask what an earlier row asks",
    "downstream": "ask what a downstream set asks",
    "contaminated": "ask what a held-out or downstream prompt asks, in another spelling",
    "empty": "are empty lines",
    "other_date": "are not between from_date and to_date",
    "no_date": "have no date that can be read (contest_date)",
}
"""Sentences about the rows left out, by PromptSplit's reason."""


def check(start: Start) -> Iterable[Finding]:
    config = start.config
    start_rules = find_starting_rules(start.checkpoints)
    split = load(config.tasks, start_rules.split)
    check_prompts(split, config.recipe.prompts_per_step)
    check_same_prompts(split, start_rules.prompts)
    start.split = split
    return warnings([*rows_left_out(split), *near_duplicates(config.tasks, split).in_words()])


def rows_left_out(split: PromptSplit) -> list[str]:
    """Which rows are left out, and which stay that a new run would leave out."""
    return [
        *contaminated_in_words(len(split.contaminated)),
        *(
            (
                f"tasks.dataset: {count} {'row is' if count == 1 else 'rows are'} left out: they "
                f"{explanation}"
            )
            for reason, explanation in _LEFT_OUT.items()
            if (count := split.skipped.get(reason, 0))
        ),
    ]
