"""What the cluster test makes of Prometheus and Grafana: both right, and with something missing."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from testkit.cluster import tools, watching
from testkit.monitoring.excused import NOT_IN_A_LOCAL_RUN
from testkit.monitoring.grafana import DASHBOARDS, FILES, load
from tests.chart.cluster_stand_in import Clock, StandIn, pod, take_step

FLEET = FILES / "dashboards" / "fleet.json"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    passing = Clock()
    monkeypatch.setattr(tools, "time", passing)
    return passing


def _prometheus(cluster: StandIn, silent: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers every query but those, be it asked or the forecaster."""
    monkeypatch.setattr(watching, "substituted", lambda text, *_: text)
    monkeypatch.setattr(watching, "quote", lambda text: text)

    def answer(text: str) -> str:
        expression = shlex.split(text)[-1].partition("query?query=")[2]
        return json.dumps({"data": {"result": [] if expression in silent else [1]}})

    cluster.there["pods"].append(pod("autoscaler"))
    cluster.answers |= {
        "^get --raw": answer,
        r"^exec .*8400/prometheus": '{"data": {"result": [1]}}',
    }


def test_a_query_without_data_fails_unless_it_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS", "monitoring/prometheus:9090")
    cluster = StandIn()
    _prometheus(cluster, set(NOT_IN_A_LOCAL_RUN), monkeypatch)
    assert take_step("the dashboards' queries", cluster)["verdict"] == "seen"
    target = next(panel for panel in load(FLEET)["panels"] if panel.get("targets"))["targets"][0]
    _prometheus(cluster, {target["expr"]}, monkeypatch)
    row = take_step("the dashboards' queries", cluster)
    assert row["verdict"] == "FAILED"
    assert target["expr"] in row["note"]


class Grafana:
    """A server that has the dashboards of the release, its data sources, and data but for some
    queries.
    """

    def __init__(self, silent: set[str] | None = None, lacks: str = "") -> None:
        missing = silent or set()
        boards = {
            path.stem: {**load(path), "title": f"{load(path)['title']} (somewhere/proof)"}
            for path in DASHBOARDS
        }
        boards.pop(lacks, None)
        uids = {"Rollcast forecast somewhere/proof": "ahead", "Prometheus": "now"}
        sources = [{"name": name, "type": "prometheus", "uid": uid} for name, uid in uids.items()]
        self.asked: list[str] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, _, name = self.path.removeprefix("/api/").partition("/uid/")
                if kind.startswith("search"):
                    self.send(
                        [{"title": board["title"], "uid": uid} for uid, board in boards.items()]
                    )
                else:
                    self.send(sources if kind == "datasources" else {"dashboard": boards[name]})

            def do_POST(self) -> None:
                (query,) = json.loads(self.rfile.read(int(self.headers["content-length"])))[
                    "queries"
                ]
                asked.append(query["datasource"]["uid"])
                values = [[]] if query["expr"] in missing else [[1], [2]]
                self.send({"results": {"A": {"frames": [{"data": {"values": values}}]}}})

            def send(self, answer: Any) -> None:
                allowed = self.headers["authorization"] == "Basic YWRtaW46c2VjcmV0"  # admin:secret
                self.send_response(200 if allowed else 401)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A program in the place of kubectl that reads a Secret, and says where it forwards to."""
    admin = json.dumps({"data": {"admin-user": "YWRtaW4=", "admin-password": "c2VjcmV0"}})

    def forwards_to(port: int) -> None:
        said = f"Forwarding from 127.0.0.1:{port} -> 3000"
        lines = (
            "#!/bin/sh",
            f"[ $3 = get ] && exec echo '{admin}'",
            f"echo '{said}'",
            "exec sleep 60",
        )
        program = tmp_path / "kubectl"
        program.write_text("\n".join(lines))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return forwards_to


@pytest.mark.parametrize(
    ("lacks", "is_silent", "verdict", "sentence"),
    [
        ("", False, "seen", "5 dashboards, both data sources"),
        ("fleet", False, "FAILED", "Grafana has the dashboards: not within"),
        ("", True, "FAILED", "no data for "),
    ],
)
def test_grafana_must_have_the_dashboards_and_show_something_on_every_panel(
    lacks: str,
    is_silent: bool,
    verdict: str,
    sentence: str,
    kubectl: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRAFANA", "monitoring/grafana:80")
    monkeypatch.setattr(watching, "substituted", lambda text, *_: text)
    target = next(panel for panel in load(FLEET)["panels"] if panel.get("targets"))["targets"][0]
    server = Grafana({target["expr"]} if is_silent else set(NOT_IN_A_LOCAL_RUN), lacks)
    kubectl(server.server.server_address[1])
    cluster = StandIn()
    cluster.there["pods"].append(pod("autoscaler"))
    threading.Thread(target=server.server.serve_forever, daemon=True).start()
    try:
        row = take_step("Grafana", cluster)
    finally:
        server.server.shutdown()
        server.server.server_close()
    assert (row["verdict"], sentence in row["note"]) == (verdict, True), row
    if verdict == "seen":
        assert set(server.asked) == {"ahead", "now"}
