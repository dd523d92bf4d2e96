"""Names of other systems' settings, from the table that the run file's messages use."""

from __future__ import annotations

from documents.tables import table
from rollcast.config.other_names import Counterpart, counterparts

INTRODUCTION = """# Names from other systems

The settings of TRL, verl, OpenRLHF, NeMo-RL and prime-rl, and their names here. A run file with one
of these names is refused, and `rollcast config check` prints the same words, with your value if it
means the same here. Other values do not: a batch is counted in prompts, steps are optimizer steps,
and micro-batches are counted in tokens.

"""


def other_names_page() -> str:
    here = [one for one in counterparts() if one.setting]
    missing = [one for one in counterparts() if not one.setting]
    supported = table(
        ("there", "here", "for example"),
        [(_names(one), f"`{one.setting}`", f"`{one.example}`") for one in here],
    )
    not_supported = table(
        ("there", "reason, and alternative"), [(_names(one), one.reason) for one in missing]
    )
    return f"{INTRODUCTION}{supported}## Not supported\n\n{not_supported}".rstrip() + "\n"


def _names(one: Counterpart) -> str:
    return ", ".join(f"`{name}`" for name in one.names)
