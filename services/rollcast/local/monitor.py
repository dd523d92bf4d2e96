"""Prometheus and Grafana for one run of this machine: `monitor/` in its folder, and `--monitor`'s
own Prometheus.

    monitor/prometheus.yml, rules.yaml     the alerts of docs/runbook.md, for this run
            targets.json                   addresses to scrape; written again if a port changes
            dashboards/*.json
            grafana/{datasources,dashboards}/rollcast.yaml
                                           provisioning: the folder for GF_PATHS_PROVISIONING
            compose.yaml                   starts both in containers
            data/                          what Prometheus stored

Paths in prometheus.yml are relative to it, so that a container may have the folder elsewhere.
"""

import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from rollcast.config.connections import Http
from rollcast.config.errors import UserError, refused_by_the_world
from rollcast.config.run import RunConfig
from rollcast.config.services import Forecaster
from rollcast.connections.http import local_url
from rollcast.connections.port_files import ports_folder, read_port
from rollcast.local.process import Command, ServiceSpec
from rollcast.runfolder.files import LOGS, MONITOR, TARGETS
from rollcast.runfolder.writing import replace_json

COMPOSE = "compose.yaml"
TOKEN = "token"  # noqa: S105  # the name of a file
SCRAPE_SECONDS = 5
"""A demo's steps take some seconds; the forecaster's page, the largest, has 20 kB."""
PLACEHOLDERS = {"@NAMESPACE@": "", "@NO_STEP_MINUTES@": "30", "@RUNBOOK@": "docs/runbook.md"}
"""Labels in rules and dashboards besides the run's name: the defaults of the chart's values. Series
of a run without a cluster have no namespace, and an empty value matches that."""
WITH_METRICS = ("trainer", "generator", "forecaster", "grader", "loggers")
"""Services that serve a metrics page, each process at a port of its own."""
HOST = "127.0.0.1"


def shipped_files() -> tuple[Path, Path]:
    """The folder of rules and dashboards, and the file that starts Prometheus and Grafana: of the
    installed package, or of the repository that it is installed from."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "monitoring"
    if installed.exists():
        return installed, installed / COMPOSE
    repository = package.parents[1]
    return repository / "helm" / "rollcast" / "files", repository / "monitoring" / COMPOSE


def write_monitor(config: RunConfig) -> Path:
    """The folder for this run. `config`: resolved, with the ports of forecaster and Prometheus
    chosen.

    Raises UserError if the disk refuses it.
    """
    folder = config.run_folder / MONITOR
    provider = {
        "name": "rollcast",
        "folder": "Rollcast",
        "options": {"path": str(folder / "dashboards")},
    }
    sources = _data_sources(
        config.run, config.http, config.forecaster, config.local.prometheus_port
    )
    yaml_files = {
        "prometheus.yml": _prometheus(config.http),
        "grafana/datasources/rollcast.yaml": {"apiVersion": 1, "datasources": sources},
        "grafana/dashboards/rollcast.yaml": {"apiVersion": 1, "providers": [provider]},
    }
    texts = {name: yaml.safe_dump(content, sort_keys=False) for name, content in yaml_files.items()}
    shipped, compose = shipped_files()
    texts["rules.yaml"] = _filled_in(shipped / "rules.yaml", config.run)
    for dashboard in sorted((shipped / "dashboards").glob("*.json")):
        texts[f"dashboards/rollcast-{dashboard.name}"] = _filled_in(dashboard, config.run)
    texts[COMPOSE] = compose.read_text()
    try:
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        if config.http.token is not None:
            token = folder / TOKEN
            token.touch(mode=0o600)
            token.write_text(config.http.token.get_secret_value())
    except OSError as error:
        raise refused_by_the_world(
            error,
            f"folder: {error.filename or folder} cannot be written ({error.strerror}); free space "
            "or fix the permissions, or leave --monitor out",
        ) from error
    Targets(config.run_folder, config.http, config.forecaster.bind).refresh()
    return folder


class Targets:
    """The addresses that Prometheus scrapes: every service that wrote its port, by its own name."""

    def __init__(self, run_folder: Path, http: Http, forecaster_bind: str) -> None:
        self._run_folder = run_folder
        self._http = http
        self._forecaster_http = http.model_copy(update={"bind": forecaster_bind})
        self._file = run_folder / MONITOR / TARGETS
        self._written_targets: list[dict[str, Any]] | None = None

    def refresh(self) -> None:
        """Write the file where something changed: a service that was started again may listen
        elsewhere.
        """
        possible_targets = [
            self._target(path) for path in sorted(ports_folder(self._run_folder).glob("*"))
        ]
        targets = [target for target in possible_targets if target is not None]
        if targets == self._written_targets:
            return
        with suppress(
            UserError
        ):  # writers of files that matter report a full disk; here the next call tries again
            replace_json(self._file, targets)
            self._written_targets = targets

    def _target(self, path: Path) -> dict[str, Any] | None:
        """None if the port serves no metrics, as gRPC's, or its file cannot be read."""
        job = path.name.partition("-")[0]
        if job not in WITH_METRICS or path.name.endswith("-grpc"):
            return None
        try:
            port = read_port(path)
        except (OSError, ValueError):
            return None
        settings = self._forecaster_http if job == "forecaster" else self._http
        _, _, address = local_url(settings, port).partition("://")
        return {"targets": [address], "labels": {"job": job, "instance": path.name}}


def prometheus_spec(run_folder: Path, port: int, server: str) -> ServiceSpec:
    """Started and stopped with the run, which goes on without it."""
    folder = run_folder / MONITOR
    arguments = (
        server,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={HOST}:{port}",
        "--log.level=warn",
    )
    command = Command(arguments, run_folder / LOGS / "prometheus.log")
    # Seconds in which Prometheus writes its last block
    return ServiceSpec("prometheus", (command,), stop_order=3, stop_seconds=5.0, essential=False)


def how_to_watch(run_folder: Path, port: int, server: str | None) -> list[str]:
    """Lines for the user: the address of Prometheus, and the commands that start Grafana."""
    folder = run_folder / MONITOR
    prometheus = f"Prometheus: http://{HOST}:{port}, its alerts at /alerts"
    services = " grafana"
    variables = f"MONITOR={shlex.quote(str(folder))}"
    if server is None:
        prometheus = "no prometheus on the path; install one, or start both in containers (below)"
        services = ""
        variables = f"{variables} PROMETHEUS_PORT={port}"
    provisioning = shlex.quote(str(folder / "grafana"))
    compose = shlex.quote(str(folder / COMPOSE))
    return [
        prometheus,
        (
            f"Grafana: GF_PATHS_PROVISIONING={provisioning} grafana server --homepath "
            "/usr/share/grafana"
        ),
        f"or in containers: {variables} docker compose -f {compose} up{services}",
    ]


def _prometheus(http: Http) -> dict[str, Any]:
    scrape: dict[str, Any] = {
        "job_name": "rollcast",
        "honor_labels": True,
        "file_sd_configs": [{"files": [TARGETS], "refresh_interval": f"{SCRAPE_SECONDS}s"}],
    }
    if http.token is not None:
        scrape["authorization"] = {"credentials_file": TOKEN}
    if http.tls is not None:  # pages are asked by address, which certificates rarely name
        scrape |= {"scheme": "https", "tls_config": {"insecure_skip_verify": True}}
    interval = f"{SCRAPE_SECONDS}s"
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [scrape],
    }


def _filled_in(file: Path, run: str) -> str:
    text = file.read_text()
    for placeholder, value in {**PLACEHOLDERS, "@RUN@": run}.items():
        text = text.replace(placeholder, value)
    return text


def _data_sources(
    run: str, http: Http, forecaster: Forecaster, prometheus_port: int
) -> list[dict[str, Any]]:
    """The Prometheus, and the forecaster, which answers queries for times to come."""
    page = local_url(http.model_copy(update={"bind": forecaster.bind}), forecaster.http_port)
    common = {"type": "prometheus", "access": "proxy"}
    options: dict[str, Any] = {"httpMethod": "POST", "timeInterval": f"{SCRAPE_SECONDS}s"}
    prometheus = {
        "name": "Prometheus",
        "uid": "rollcast-prometheus",
        **common,
        "url": f"http://{HOST}:{prometheus_port}",
        "isDefault": True,
        "jsonData": options,
    }
    forecast: dict[str, Any] = {
        "name": f"Rollcast forecast {run}",
        "uid": "rollcast-forecast",
        **common,
        "url": f"{page}/prometheus",
        "jsonData": dict(options),
    }
    if http.tls is not None:
        forecast["jsonData"]["tlsSkipVerify"] = True
    if (
        http.token is not None
    ):  # a variable of Grafana's own: no secret is written into a second file
        forecast["jsonData"]["httpHeaderName1"] = "Authorization"
        forecast["secureJsonData"] = {"httpHeaderValue1": "Bearer $ROLLCAST_HTTP_TOKEN"}
    return [prometheus, forecast]
