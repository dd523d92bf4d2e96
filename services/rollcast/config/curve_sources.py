"""Settings of the sources that the forecaster reads curves from."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import CONDITION, CURVE_NAME, NAMESPACE, Settings
from rollcast.config.bounds import MOST_COMPUTE
from rollcast.config.connections import Secret


class DirectScrape(Settings):
    kind: Literal["scrape"] = "scrape"
    """Read the services' /metrics: no Prometheus needed."""
    urls: tuple[str, ...] = ()
    """Metrics pages; http.token is presented to each. Empty = the trainer's, found in the run
    folder."""
    every_seconds: Annotated[float, Field(gt=0)] = 2.0
    """Interval of reading."""


class CurveTerms(Settings):
    """Terms of the advice on a run of another framework."""

    budget: Annotated[float, Field(gt=0, le=MOST_COMPUTE)] | None = None
    """Compute at which the run will end, including the compute spent so far, in the unit of its
    curve. None = unknown: the advice assumes twice the compute spent so far, and says so."""
    worth: Annotated[float, Field(ge=0, le=1)] | None = None
    """Gain in pass rate that the rest of the budget would be paid for. None = 0.02, less in
    proportion where less is left than was spent."""
    price: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """Price of one unit of the curve's compute, in any currency. None = no cost is reported."""


class CurveQueries(CurveTerms):
    """A run of any framework, as PromQL: each expression selects one series that keeps its value
    between evaluations.
    """

    run: Annotated[str, Field(pattern=CURVE_NAME)]
    """Name under which the forecast is served."""
    pass_rate: str
    """Mean reward or accuracy on held-out prompts, in [0, 1]."""
    compute: str
    """Device-hours since the start when that was measured."""
    standard_error: str | None = None
    """Standard error of the pass rate. None = unknown."""
    truncation_ratio: str | None = None
    """Share of the rollouts that the token budget cut off; the verdict heeds it. None = unknown."""
    step: str | None = None
    """Optimizer step of the evaluation, which distinguishes it from the next one. None = by a
    change of the pass rate."""
    look_back_hours: Annotated[float, Field(gt=0, le=8_760)] = 720.0
    """How far back the run began, at most."""


class PrometheusSource(Settings):
    kind: Literal["prometheus"] = "prometheus"
    """Read a Prometheus server's query API."""
    url: str
    """Address of the server, as http://host:9090."""
    every_seconds: Annotated[float, Field(gt=0)] = 5.0
    """Interval of reading. A third of the usual scrape interval, so that a forecast is refreshed
    within one; most looks find nothing new and fit nothing."""
    token: Secret | None = None
    """Bearer token. None = none."""
    namespace: Annotated[str, Field(pattern=NAMESPACE)] = ""
    """Only Rollcast's runs whose series have this label `namespace`; two of one name in two
    namespaces would be taken for one. The chart sets its own. Empty = whatever the label."""
    curves: tuple[CurveQueries, ...] = ()
    """Runs of other frameworks. Rollcast's own runs are found by their metrics' names."""


class CurveFile(CurveTerms):
    """A run of any framework as a log that grows: a file or folder of a format that `rollcast fit`
    reads.
    """

    run: Annotated[str, Field(pattern=CURVE_NAME)]
    """Name under which the forecast is served."""
    path: Path
    """File or folder: CSV, JSON, JSONL, W&B, TensorBoard, MLflow, TRL, or a console log; at most 64
    MiB. One that has changed is read again from its beginning. A last line that is not ended yet
    waits for its end. Columns are found in upper and lower case alike."""
    compute: str | None = None
    """Column of the compute since the start; its name contains the unit. None = recognised by its
    name, as `rollcast fit` does: device-hours, else steps, else tokens, samples or times."""
    pass_rate: str | None = None
    """Column of the mean reward or accuracy on held-out prompts, in [0, 1]. None = recognised by
    its name, as `rollcast fit` does; if several could be meant, the page asks for this setting."""
    scale: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Times the pass rate, after `offset` was added, and times its standard error. 0.01 = the file
    holds per cent."""
    offset: Annotated[float, Field(ge=-1e6, le=1e6)] = 0.0
    """Added to the pass rate before it is scaled. 1, with scale 0.5, maps rewards in [-1, 1] to [0,
    1]; 0 adds nothing."""
    standard_error: str | None = None
    """Column of the standard error of the pass rate. None = standard_error, stderr; unknown if the
    file has neither."""
    truncation_ratio: str | None = None
    """Share of the rollouts that the token budget cut off; the verdict heeds it. None =
    truncation_ratio, truncation_rate, truncated."""
    step: str | None = None
    """Optimizer step, which distinguishes evaluations. None = global_step, training_step, step,
    iteration and the like, or else the number of the row."""
    time: str | None = None
    """Unix seconds of the evaluation. None = when its row was first read."""
    where: tuple[Annotated[str, Field(pattern=CONDITION)], ...] = ()
    """COLUMN=VALUE that rows must meet, for a file with several runs or measures."""


class FileSource(Settings):
    kind: Literal["files"] = "files"
    """Read files: no service, no Prometheus needed."""
    curves: Annotated[tuple[CurveFile, ...], Field(min_length=1, max_length=200)]
    """One file for each run."""
    every_seconds: Annotated[float, Field(gt=0)] = 2.0
    """Interval between two looks at each file; one that has not changed is not read. A long file
    that changes all the time is read less often: 5 MiB a second on average."""
