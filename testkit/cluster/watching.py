"""Views of the release in a cluster's own Prometheus and Grafana."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import httpx

from rollcast.telemetry import trainer_metrics
from testkit.cluster.proof import Proof
from testkit.cluster.release import STEP_SECONDS
from testkit.cluster.tools import Cluster, NotSeen, Refuted
from testkit.monitoring.excused import NOT_IN_A_LOCAL_RUN
from testkit.monitoring.grafana import DASHBOARDS, FORECASTER, load, panels, substituted
from testkit.monitoring.recording import Recording

RUN = "demo"
RANGE_SECONDS = 900
SCRAPE_SECONDS = 15
POINTS = 100
WATCHED = (
    "monitoring.enabled=true",
    "monitoring.rules.enabled=true",
    "monitoring.dashboards.enabled=true",
    "autoscaler.mode=controller",
    "autoscaler.maxReplicas=1",
)
"""With an autoscaler, whose panels would be empty, and nothing that it could scale."""


def dashboards(proof: Proof) -> None:
    """Every query of every dashboard, asked of the cluster's own Prometheus, which scrapes the
    release.
    """
    if proof.prometheus is None:
        raise NotSeen("PROMETHEUS names no service, as namespace/name:port")
    _watch(proof)
    step = trainer_metrics.TRAINER_STEP.name
    proof.cluster.until("the run is scraped", STEP_SECONDS, lambda: _metrics(proof, step))
    boards = [load(path) for path in DASHBOARDS]
    count = _all_answer(proof, boards, lambda target: _answers(proof, target))
    proof.note(
        f"{count} queries, each answered with data but those that a run without trouble may leave "
        "empty"
    )


def grafana(proof: Proof) -> None:
    """The dashboards and the second data source are there, and every panel's query finds something,
    by Grafana.
    """
    if proof.grafana is None:
        raise NotSeen("GRAFANA names no service, as namespace/name:port")
    _watch(proof)
    cluster = proof.cluster
    namespace, service, port = _place(proof.grafana)
    with cluster.forward_port(namespace, service, port) as address:
        secret = Cluster(namespace, cluster.recorded).read("get", "secret", service).get("data", {})
        user, password = (
            base64.b64decode(secret.get(key, "")).decode()
            for key in ("admin-user", "admin-password")
        )
        if cluster.recorded is not None:
            return
        # Seconds for one answer of Grafana
        with httpx.Client(base_url=address, auth=(user, password), timeout=30.0) as client:
            title_suffix = f"({cluster.namespace}/{proof.release.name})"
            titles = {f"{load(path)['title']} {title_suffix}" for path in DASHBOARDS}
            cluster.until(
                "Grafana has the dashboards", STEP_SECONDS, lambda: titles <= set(_titles(client))
            )
            cluster.until(
                "Grafana has the data sources",
                STEP_SECONDS,
                lambda: len(_sources(client, proof)) == 2,
            )
            sources = _sources(client, proof)
            uids = _titles(client)
            boards = [
                _request_json(client, "GET", f"/api/dashboards/uid/{uids[title]}")["dashboard"]
                for title in sorted(titles)
            ]
            count = _all_answer(
                proof, boards, lambda target: _shows(client, sources, proof, target)
            )
    proof.note(
        f"{len(titles)} dashboards, both data sources, {count} queries of panels answered with data"
    )


def _watch(proof: Proof) -> None:
    if not proof.cluster.has("podmonitors.monitoring.coreos.com"):
        raise NotSeen("the cluster has no Prometheus operator")
    proof.release.upgrade(*WATCHED)
    proof.release.wait_ready("forecaster", "autoscaler", "generator")
    proof.release.goes_on()


def _all_answer(
    proof: Proof, boards: list[dict[str, Any]], finds: Callable[[dict[str, Any]], bool]
) -> int:
    """How many queries these dashboards have.

    Raises Refuted with those that find nothing in spite of some patience.
    """
    queries = list(_targets(boards))
    silent = queries

    def all_found() -> bool:
        nonlocal silent
        silent = [(title, target) for title, target in silent if not finds(target)]
        return all(target["expr"] in NOT_IN_A_LOCAL_RUN for _, target in silent)

    try:
        # Until there are evaluations enough for a forecast, and a rate of everything
        proof.cluster.until("every query finds something", 900.0, all_found)
    except Refuted as error:
        unexcused = [row for row in silent if row[1]["expr"] not in NOT_IN_A_LOCAL_RUN]
        names = "; ".join(f"{title}: {target['expr']}" for title, target in unexcused)
        raise Refuted(f"no data for {names} ({error})") from error
    return len(queries)


def _targets(boards: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each query, with the title of its panel."""
    for board in boards:
        for panel in panels(board):
            for target in panel.get("targets", []):
                yield f"{board['title']}, {panel['title']}", target


def _expression(proof: Proof, target: dict[str, Any]) -> str:
    now_seconds, namespace = time.time(), proof.cluster.namespace
    began = now_seconds - RANGE_SECONDS
    looked_at = Recording("", "", (RUN,), began, now_seconds, namespace, SCRAPE_SECONDS)
    # A target pass rate that the demo's model is past from the start
    return substituted(target["expr"], looked_at, 0.2)


def _answers(proof: Proof, target: dict[str, Any]) -> bool:
    """Whether Prometheus, or the forecaster for times to come, has any series."""
    expression = _expression(proof, target)
    if target["datasource"]["uid"] != FORECASTER:
        return _metrics(proof, expression)
    parameters: dict[str, object] = {"query": expression}
    kind = "query"
    if not target.get("instant"):
        kind, start = "query_range", time.time()
        step = RANGE_SECONDS / POINTS
        parameters |= {"start": start, "end": start + RANGE_SECONDS, "step": step}
    page = f"http://127.0.0.1:8400/prometheus/api/v1/{kind}?{urlencode(parameters)}"
    return bool(json.loads(proof.release.page("forecaster", page))["data"]["result"])


def _metrics(proof: Proof, expression: str) -> bool:
    """Whether Prometheus answers with any series."""
    assert proof.prometheus is not None
    namespace, service, port = _place(proof.prometheus)
    proxy = f"/api/v1/namespaces/{namespace}/services/{service}:{port}/proxy"
    path = f"{proxy}/api/v1/query?query={quote(expression)}"
    return bool(json.loads(proof.cluster.kubectl("get", "--raw", path))["data"]["result"])


def _shows(
    client: httpx.Client, sources: dict[str, str], proof: Proof, target: dict[str, Any]
) -> bool:
    """Whether Grafana gets any value for the query of a panel."""
    ahead = target["datasource"]["uid"] == FORECASTER
    begin = int(time.time()) - (0 if ahead else RANGE_SECONDS)
    source = sources["forecaster" if ahead else "prometheus"]
    query = {
        "refId": "A",
        "datasource": {"type": "prometheus", "uid": source},
        "expr": _expression(proof, target),
        "instant": bool(target.get("instant")),
        "range": not target.get("instant"),
        "intervalMs": 1000 * SCRAPE_SECONDS,
        "maxDataPoints": POINTS,
    }
    end = begin + RANGE_SECONDS
    body = {"queries": [query], "from": str(1000 * begin), "to": str(1000 * end)}
    frames = _request_json(client, "POST", "/api/ds/query", body)["results"]["A"].get("frames", [])
    return any(column for frame in frames for column in frame.get("data", {}).get("values", []))


def _titles(client: httpx.Client) -> dict[str, str]:
    """Title of each dashboard -> its uid."""
    return {
        dashboard["title"]: dashboard["uid"]
        for dashboard in _request_json(client, "GET", "/api/search?type=dash-db&limit=5000")
    }


def _sources(client: httpx.Client, proof: Proof) -> dict[str, str]:
    """Which -> its uid: the Prometheus that dashboards begin with,
    and this release's forecaster.
    """
    source_name = f"Rollcast forecast {proof.cluster.namespace}/{proof.release.name}"
    uids = {}
    for source in _request_json(client, "GET", "/api/datasources"):
        if source["name"] == source_name:
            uids["forecaster"] = source["uid"]
        elif source["type"] == "prometheus" and "forecast" not in source["name"].lower():
            uids.setdefault("prometheus", source["uid"])
    return uids


def _request_json(client: httpx.Client, method: str, path: str, body: object = None) -> Any:
    """The answer as JSON. Raises Refuted if the answer is missing."""
    try:
        answer = client.request(method, path, json=body)
        if answer.status_code != httpx.codes.OK:
            raise Refuted(f"Grafana answered {answer.status_code} to {path}: {answer.text[:200]}")
        return answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise Refuted(f"Grafana does not answer {path}: {error}") from error


def _place(text: str) -> tuple[str, str, str]:
    """Namespace, service, port of namespace/name:port."""
    namespace, _, service = text.partition("/")
    name, _, port = service.partition(":")
    return namespace, name, port
