"""Consoles that print all metrics of a step in one line. Between the lines are progress bars and
other processes'.

    verl       step:12 - val-core/openai/gsm8k/reward/mean@1:0.53 - critic/score/mean:0.41 - ..
    OpenRLHF   Global step 12: {'policy_loss': 0.1, 'reward': 0.43, ..}
               Evaluation completed in 0:01:20, global_step 12, eval_metrics: {'eval_pass1': .4, ..}
    TRL        {'loss': 0.01, 'reward': '0.43', .., 'epoch': 0.12}

verl may print a number as `np.float64(0.41)`.

The mappings are read as text, never evaluated. Ray puts `(TaskRunner pid=123) ` before a line of
verl.
"""

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.formats.titles import printed_titles, titles_by_row
from rollcast.curves.sheet import Row, Sheet


@dataclass(frozen=True)
class OneLineConsole:
    """Attributes:
    name: for the user.
    mark: a text that is in every such log.
    line: a line of metrics; its groups are `metrics` and, if the line names it, `step`.
    item: name and value of one metric.
    min_metrics: metrics in a line, so that a sentence is not taken for one.
    """

    name: str
    mark: str
    line: re.Pattern[str]
    item: re.Pattern[str]
    min_metrics: int = 1

    def recognises(self, log: LogFile) -> bool:
        return self.mark in log.console and any(
            len(metrics) >= self.min_metrics for _, _, metrics in self._lines(log.console)
        )

    def read(self, log: LogFile) -> Sheet:
        """One row for each line of metrics."""
        # A list would take four times the memory, and a long log may have a million lines of
        # metrics.
        line_numbers = array("L")

        def rows() -> Iterator[Row]:
            for number, step, metrics in self._lines(log.console):
                line_numbers.append(number)
                yield {**step, **metrics}

        sheet = Sheet.from_rows(self.name, rows())
        return sheet.with_titles(titles_by_row(printed_titles(log.console), line_numbers))

    def _lines(self, text: str) -> Iterator[tuple[int, Row, Row]]:
        """The number of each line, from 1, its step, if it names one, and its metrics."""
        number = 1
        counted = 0
        for line in self.line.finditer(text):
            # Counted from the previous match, so that a long text is read only once.
            number += text.count("\n", counted, line.start())
            counted = line.start()
            line_fields = line.groupdict()
            metrics = dict(self.item.findall(line_fields.pop("metrics")))
            yield number, {name: int(step) for name, step in line_fields.items()}, metrics


VERL = OneLineConsole(
    name="console log of verl",
    mark="step:",
    line=re.compile(r"\bstep:(?P<step>\d{1,12}) - (?P<metrics>\S+:.*)"),
    item=re.compile(
        r"(?:^| - )(\S{1,300}?):(?:np\.\w+\()?(-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf|nan))\)?(?= - "
        r"|\s|$)"
    ),
    min_metrics=2,
)
OPENRLHF = OneLineConsole(
    name="console log of OpenRLHF",
    # A part of both `Global step` and `global_step`.
    mark="lobal",
    line=re.compile(
        r"\b(?:[Gg]lobal step|global_step) (?P<step>\d{1,12})(?:, eval_metrics)?: (?P<metrics>\{.*)"
    ),
    item=re.compile(
        r"'([^']{1,300})': (?:np\.\w+\(|tensor\()?(-?\d+(?:\.\d*)?(?:e[-+]?\d+)?)\)?(?=[,}])"
    ),
)
TRL = OneLineConsole(
    name="console log of TRL or transformers",
    mark="'epoch': ",
    line=re.compile(r"(?P<metrics>\{(?=[^{}\n]*'epoch': '?[\d.])'[^'\n{}]{1,300}': [^{}\n]*\})"),
    item=re.compile(
        r"'([^']{1,300})': (?:np\.\w+\(|tensor\()?'?(-?\d+(?:\.\d*)?(?:e[-+]?\d+)?)'?\)?(?=[,}])"
    ),
)
"""Transformers 5 puts the numbers in quotes."""
