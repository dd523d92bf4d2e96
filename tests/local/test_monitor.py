"""What `up --monitor` writes: Prometheus's own checker takes it, and whom it scrapes follows the
services.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from monitoring.alerts import ALERTS
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.connections.http import HttpServer, listen, service_routes
from rollcast.connections.port_files import port_file, publish_port
from rollcast.local import monitor
from rollcast.local.preflight import resolve_ports
from rollcast.local.process import Service
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.exporter import Exporter
from testkit.forecaster.prometheus_server import NEEDS_PROMETHEUS, PROMETHEUS, PROMTOOL
from testkit.system.harness import wait_for

ROOT = Path(__file__).parents[2]
_LABELS = {"run": "watched", "job": "trainer", "instance": "trainer"}
NEEDS_PROMTOOL = pytest.mark.skipif(
    PROMTOOL is None, reason="needs promtool (Debian package prometheus)"
)


def settings(tmp_path: Path, **more: Any) -> RunConfig:
    free = {"forecaster": {"http_port": 0}, "local": {"prometheus_port": 0}}
    data = {"run": "watched", "folder": str(tmp_path), "model": {"path": "m"}, **free}
    return resolve_ports(parse_run_config({**data, **more}, source="test"), monitor=True)


@NEEDS_PROMTOOL
@pytest.mark.parametrize("secured", [False, True])
def test_prometheus_takes_the_files(tmp_path: Path, secured: bool) -> None:
    assert PROMTOOL is not None
    config = settings(tmp_path, **({"http": {"token": "secret-of-this-run"}} if secured else {}))
    folder = monitor.write_monitor(config)
    checked = subprocess.run(
        [PROMTOOL, "check", "config", folder / "prometheus.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    rules = yaml.safe_load((folder / "rules.yaml").read_text())["groups"][0]["rules"]
    assert f"SUCCESS: {len(rules)} rules found" in checked.stdout
    assert all('run="watched"' in rule["expr"] for rule in rules)
    for file in (folder / "rules.yaml", *(folder / "dashboards").iterdir()):
        assert not re.search("@[A-Z_]+@", file.read_text()), (
            f"every placeholder of {file.name} is filled in"
        )
    holders = [
        path
        for path in folder.rglob("*")
        if path.is_file() and "secret-of-this-run" in path.read_text()
    ]
    assert holders == ([folder / "token"] if secured else [])
    assert all(path.stat().st_mode & 0o077 == 0 for path in holders), "for the owner alone"


def test_what_the_rules_leave_open_is_as_the_chart_says() -> None:
    values = yaml.safe_load((ROOT / "helm/rollcast/values.yaml").read_text())["monitoring"]["rules"]
    assert {
        "@NAMESPACE@": "",
        "@NO_STEP_MINUTES@": str(values["noStepMinutes"]),
        "@RUNBOOK@": values["runbookUrl"],
    } == monitor.PLACEHOLDERS


def test_whom_it_scrapes_follows_the_services(tmp_path: Path) -> None:
    config = settings(tmp_path)
    folder = monitor.write_monitor(config)
    targets = monitor.Targets(config.run_folder, config.http, config.forecaster.bind)
    assert json.loads((folder / "targets.json").read_text()) == []
    for name, port in (
        ("trainer", 1001),
        ("generator-0", 1002),
        ("rpc", 1003),
        ("grader-grpc", 1006),
        ("forecaster", 1004),
        ("loggers", 1005),
    ):
        publish_port(config.run_folder, name, port)
    port_file(config.run_folder, "generator-1").write_text("no number")
    targets.refresh()
    assert {
        (target["labels"]["job"], target["labels"]["instance"], *target["targets"])
        for target in json.loads((folder / "targets.json").read_text())
    } == {
        ("trainer", "trainer", "127.0.0.1:1001"),
        ("generator", "generator-0", "127.0.0.1:1002"),
        ("forecaster", "forecaster", "127.0.0.1:1004"),
        ("loggers", "loggers", "127.0.0.1:1005"),
    }
    publish_port(config.run_folder, "generator-0", 2002)
    targets.refresh()
    assert "127.0.0.1:2002" in (folder / "targets.json").read_text(), "it was started again"


def test_a_disk_that_refuses_the_folder_is_one_sentence(tmp_path: Path) -> None:
    config = settings(tmp_path)
    config.run_folder.mkdir()
    (config.run_folder / "monitor").write_text("")
    with pytest.raises(UserError, match=r"watched/monitor cannot be written \(File exists\)"):
        monitor.write_monitor(config)


def test_grafana_finds_both_data_sources_and_every_dashboard(tmp_path: Path) -> None:
    config = settings(tmp_path)
    folder = monitor.write_monitor(config)
    sources = yaml.safe_load((folder / "grafana/datasources/rollcast.yaml").read_text())[
        "datasources"
    ]
    prometheus, forecast = sources
    assert prometheus["url"] == f"http://127.0.0.1:{config.local.prometheus_port}"
    assert forecast["url"] == f"http://127.0.0.1:{config.forecaster.http_port}/prometheus"
    assert config.forecaster.http_port > 0
    assert config.local.prometheus_port > 0
    assert "forecast" not in prometheus["name"].lower(), (
        "the dashboards tell the two apart by this word"
    )
    assert "forecast" in forecast["name"]
    (provider,) = yaml.safe_load((folder / "grafana/dashboards/rollcast.yaml").read_text())[
        "providers"
    ]
    shipped = sorted((ROOT / "helm/rollcast/files/dashboards").glob("*.json"))
    given = sorted(Path(provider["options"]["path"]).glob("*.json"))
    filled_in = [
        path.read_text().replace("@NAMESPACE@", "").replace("@RUN@", "watched") for path in shipped
    ]
    assert [path.read_text() for path in given] == filled_in


def test_the_compose_file_starts_both_with_the_files_of_a_run(tmp_path: Path) -> None:
    folder = monitor.write_monitor(settings(tmp_path))
    text = (folder / "compose.yaml").read_text()
    assert text == (ROOT / "monitoring/compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    assert set(services) == {"prometheus", "grafana"}
    asked = {
        part.partition("${MONITOR}")[2]
        for part in services["prometheus"]["command"]
        if "${MONITOR}" in part
    }
    asked.add(
        services["grafana"]["environment"]["GF_PATHS_PROVISIONING"].partition("${MONITOR}")[2]
    )
    assert asked == {"/prometheus.yml", "/data", "/grafana"}
    assert all((folder / path.removeprefix("/")).exists() for path in asked - {"/data"})
    assert all(service["network_mode"] == "host" for service in services.values()), (
        "services listen on 127.0.0.1"
    )
    assert all(
        ":v" in service["image"] or service["image"].count(".") == 2
        for service in services.values()
    ), "pinned"


@NEEDS_PROMETHEUS
def test_a_real_prometheus_scrapes_the_services_and_evaluates_every_alert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server as `up` starts it, on a page that is behind the run's token and moves to another
    port.
    """
    monkeypatch.setattr(monitor, "SCRAPE_SECONDS", 1)
    config = settings(tmp_path, http={"token": "secret-of-this-run"})
    assert PROMETHEUS is not None
    monitor.write_monitor(config)
    targets, exporter = (
        monitor.Targets(config.run_folder, config.http, config.forecaster.bind),
        Exporter("watched"),
    )
    exporter.set(trainer_metrics.TRAINER_STEP, 7)
    server = Service(
        monitor.prometheus_spec(config.run_folder, config.local.prometheus_port, PROMETHEUS)
    )

    def ask(path: str) -> dict[str, Any]:
        try:
            answer = httpx.get(
                f"http://127.0.0.1:{config.local.prometheus_port}/api/v1/{path}", timeout=10.0
            )
            answer.raise_for_status()  # "Service Unavailable" while it starts
        except httpx.HTTPError:
            return {}
        found: dict[str, Any] = answer.json().get("data", {})
        return found

    def rules() -> list[dict[str, Any]]:
        return [rule for group in ask("rules").get("groups", []) for rule in group["rules"]]

    def series() -> list[dict[str, str]]:
        return [row["metric"] for row in ask("query?query=rollcast_trainer_step").get("result", [])]

    def scraped() -> dict[str, str]:
        return {one["scrapeUrl"]: one["health"] for one in ask("targets").get("activeTargets", [])}

    server.start()
    try:
        for _ in range(2):
            listener = listen("127.0.0.1", 0, setting="port")
            page = HttpServer(
                service_routes(exporter.render, lambda: (True, "ok")), listener, config.http
            )
            page.start()
            publish_port(config.run_folder, "trainer", page.port)
            targets.refresh()
            wanted = {f"http://127.0.0.1:{page.port}/metrics": "up"}
            wait_for(lambda wanted=wanted: scraped() == wanted, 60, "the page is scraped")  # type: ignore[misc]
            page.stop()
        wait_for(
            lambda: {rule["health"] for rule in rules()} == {"ok"}, 60, "every rule was evaluated"
        )
        assert len(rules()) == len(ALERTS)
        assert series() in ([], [{"__name__": "rollcast_trainer_step"} | _LABELS]), (
            "no longer once it is stale"
        )
    finally:
        server.terminate()
        wait_for(lambda: server.poll() is not None, 30, "it stops when it is asked to")
    assert server.poll() == 0


def test_the_user_is_told_where_everything_is(tmp_path: Path) -> None:
    config = settings(tmp_path)
    where = (config.run_folder, config.local.prometheus_port)
    with_server = monitor.how_to_watch(*where, "/usr/bin/prometheus")
    without = monitor.how_to_watch(*where, None)
    assert f"http://127.0.0.1:{config.local.prometheus_port}" in with_server[0]
    assert with_server[2].endswith("compose.yaml up grafana"), (
        "a second Prometheus would want the port of the first"
    )
    assert "no prometheus on the path" in without[0]
    assert without[2].endswith("compose.yaml up")
    folder = monitor.write_monitor(config)
    for line in (with_server[2], without[2]):
        words = shlex.split(line.partition(": ")[2])
        assert Path(words[words.index("-f") + 1]) == folder / "compose.yaml", (
            "wherever the command is typed"
        )
    assert f"PROMETHEUS_PORT={config.local.prometheus_port}" in without[2], (
        "which the data source names"
    )
