"""The source of evaluations that a run file names."""

from pathlib import Path
from typing import Protocol

from rollcast.config.services import DirectScrape, FileSource, Http, PrometheusSource
from rollcast.connections.port_files import port_file
from rollcast.curves.reading import Reading
from rollcast.curves.sources.file import CurveFiles
from rollcast.curves.sources.metrics_page import MetricsPages
from rollcast.curves.sources.prometheus import PrometheusQueries


class EvaluationSource(Protocol):
    """Read every few seconds; never keeps state that a later `read` could not rebuild."""

    def read(self) -> Reading:
        """One look. Raises SourceAway if the source cannot be read."""

    def close(self) -> None: ...


def open_source(
    settings: DirectScrape | PrometheusSource | FileSource, http: Http, run_folder: Path
) -> EvaluationSource:
    """The source that the run file names. `http`: the settings of the services' own HTTP servers."""
    if isinstance(settings, PrometheusSource):
        return PrometheusQueries(settings.url, settings.token, settings.curves, settings.namespace)
    if isinstance(settings, FileSource):
        return CurveFiles(settings.curves)
    return MetricsPages(settings.urls, http, port_file(run_folder, "trainer"))
