"""Which rules a run on this machine began under, and which it was graded by last: its newest
checkpoint has both.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from rollcast.config.rules_versions import FIRST_RULES, GRADING_RULES, SPLIT_RULES
from rollcast.runfolder.files import CONTROLLER, Place
from rollcast.runfolder.kept_checkpoints import kept_versions


@dataclass(frozen=True, slots=True)
class CheckpointRules:
    split: int
    grading: int
    uses: dict[str, int] = field(default_factory=dict)
    """How often each prompt was trained on, by its id."""
    prompts: str = ""
    """Digest of the run's prompts; empty if none is kept."""


def checkpoint_rules(location: Place) -> CheckpointRules | None:
    """The rules in the newest checkpoint; None without a readable one here.

    The trainer checks its content.
    """
    for folder in reversed(kept_versions(location).values()):
        try:
            with (folder / CONTROLLER).open("rb") as stream:
                # The state of rank 0 holds every prompt that was trained on
                controller = json.loads(stream.read((256 << 20) + 1))["controller"]
            return CheckpointRules(
                _version(controller, "split_rules"),
                _version(controller, "grading_rules"),
                dict(controller["uses"]),
                str(controller.get("prompts", "")),
            )
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            continue
    return None


def find_starting_rules(location: Place) -> CheckpointRules:
    """The rules by which prompts are divided if a run is started with these checkpoints, and those
    that it keeps.
    """
    return checkpoint_rules(location) or CheckpointRules(SPLIT_RULES, GRADING_RULES)


def _version(controller: dict[str, Any], name: str) -> int:
    """Raises ValueError for what no release writes."""
    rules_version = controller.get(name, FIRST_RULES)
    if type(rules_version) is not int or rules_version < 1:
        raise ValueError(name)
    return rules_version
