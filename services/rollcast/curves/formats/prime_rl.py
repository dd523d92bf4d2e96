"""prime-rl's console: `SUCCESS Step 12 | Time: 3.1s | Reward: 0.4312 | Val. Reward: 0.4 | ..` of
the orchestrator, and `Evaluated aime2024 in 12.3s (Avg@8=0.1234, Pass@8: 0.3, ..)` of its
evaluations. Those run during the training, over several steps; a line `Running evals for checkpoint
step 12` before them names their weights.
"""

import re

from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.formats.titles import printed_titles, titles_by_row
from rollcast.curves.sheet import Row, Sheet

NAME = "console log of prime-rl"
_STEP = re.compile(r"\bStep (\d{1,12}) \| ")
_REWARD = re.compile(r"\bReward: ")
_EVALUATED = re.compile(r"\bEvaluated (\S{1,200}) in [\d.]{1,20}\s?\w{0,20} \(")
_PART = re.compile(
    r"(?<![A-Za-z])([A-Z][\w .@/-]{0,60}?)[:=] ?(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?=[\s,)|%a-z]|$)"
)
_AT_STEP = re.compile(r"\b(?:step|ckpt)[= ](\d{1,12})\b", re.IGNORECASE)
_BEGUN = re.compile(
    r"\bRunning (?:evals for (?:checkpoint|interval) step (\d{1,12})|final evals\b)"
)


def recognises(log: LogFile) -> bool:
    return any(_match_step(line) for line in log.console.split("\n") if "Step " in line)


def read(log: LogFile) -> Sheet:
    """A row for each step and each evaluation.

    An evaluation whose step no line names belongs to the step before it.
    """
    rows: list[Row] = []
    step = 0
    evaluated: int | None = None
    line_numbers: list[int] = []
    for number, line in enumerate(log.console.split("\n"), 1):
        if entry_match := _match_step(line):
            step = int(entry_match[1])
            line_numbers.append(number)
            pairs = _PART.findall(line, entry_match.end())
            rows.append({"step": step, **{_name(key): value for key, value in pairs}})
        elif start_match := _BEGUN.search(line):
            evaluated = int(start_match[1]) if start_match[1] else step
        elif (entry_match := _EVALUATED.search(line)) and (
            end := line.rfind(")")
        ) >= entry_match.end():
            # Several data sets follow one line that names the step, so the step stays for all of
            # them.
            at = step if evaluated is None else evaluated
            if step_match := _AT_STEP.search(line):
                at = int(step_match[1])
            prefix = f"eval/{entry_match[1]}"
            pairs = _PART.findall(line[entry_match.end() : end])
            values = {f"{prefix}/{_name(key)}": value for key, value in pairs}
            line_numbers.append(number)
            rows.append({"step": at, **values})
    return Sheet.from_rows(NAME, rows).with_titles(
        titles_by_row(printed_titles(log.console), line_numbers)
    )


def _match_step(line: str) -> re.Match[str] | None:
    """The beginning of a line on a step, up to the first value; None for other lines."""
    began = _STEP.search(line)
    return began if began and _REWARD.search(line, began.end()) else None


def _name(label: str) -> str:
    return label.strip().lower().replace(".", "").replace(" ", "_")
