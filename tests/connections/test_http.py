"""Real servers and clients over loopback: token, certificates, probes."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from rollcast.config.connections import TLS, Http
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.connections.certificates import check_certificates
from rollcast.connections.http import (
    Heartbeat,
    HttpServer,
    client,
    listen,
    local_url,
    service_routes,
)
from rollcast.connections.port_files import publish_port
from rollcast.connections.token_gate import presents
from rollcast.local.status import StatusReader
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.prometheus_reader import MetricsPage, SourceAway
from testkit.connections.certificates import lock_key, make_certificates
from testkit.forecaster.recorded_run import TrainerPage, record, run_file
from testkit.forecaster.service_process import running, wait_for

TOKEN = "a secret: with, odd signs=="


@contextmanager
def serving(http: Http, exporter: Exporter | None = None) -> Iterator[int]:
    routes = service_routes((exporter or Exporter("r")).render, lambda: (True, "ok"))
    server = HttpServer(routes, listen(http.bind, 0, setting="port"), http)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


def basic(password: str, user: str = "anyone") -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_the_token_is_demanded_on_everything_but_the_probes() -> None:
    with (
        serving(Http(token=SecretStr(TOKEN))) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as caller,
    ):
        for path in ("/healthz", "/readyz"):
            assert caller.get(path).status_code == 200
        refused = [
            {},
            {"authorization": f"Bearer {TOKEN}x"},
            {"authorization": f"Bearer {TOKEN[:-1]}"},
            {"authorization": "Bearer"},
            {"authorization": TOKEN},
            {"authorization": f"Digest {TOKEN}"},
            {"authorization": "Basic !!!"},
            basic(f"{TOKEN}x"),
            basic(""),
        ]
        for headers in refused:
            for path in (
                "/metrics",
                "/nothing",
                "/healthz/",
                "/readyz/../metrics",
                "//healthz",
                "/HEALTHZ",
            ):
                answer = caller.get(path, headers=headers)
                assert answer.status_code == 401, (path, headers)
                assert answer.headers["www-authenticate"].startswith("Basic ")
                assert "rollcast_" not in answer.text
        for headers in (
            {"authorization": f"Bearer {TOKEN}"},
            {"authorization": f"bearer {TOKEN}"},
            basic(TOKEN),
        ):
            assert caller.get("/metrics", headers=headers).status_code == 200
            assert caller.get("/nothing", headers=headers).status_code == 404
        twice = [("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer x")]
        assert caller.get("/metrics", headers=twice).status_code == 401
    with client(token=SecretStr(TOKEN)) as own, serving(Http(token=SecretStr(TOKEN))) as port:
        assert own.get(f"http://127.0.0.1:{port}/metrics").status_code == 200


@given(st.binary(max_size=80))
@settings(deadline=None, max_examples=300)
def test_no_other_header_is_let_in(value: bytes) -> None:
    for header in (
        value,
        b"Basic " + value,
        b"Bearer " + value,
        b"Basic " + base64.b64encode(b"u:" + value),
    ):
        assert not presents(
            {"type": "http", "headers": [(b"authorization", header)]}, TOKEN.encode()
        )


def test_tls_is_served_and_verified(tmp_path: Path) -> None:
    tls = make_certificates(tmp_path / "ours")
    stranger = make_certificates(tmp_path / "theirs")
    http = Http(tls=tls, token=SecretStr(TOKEN))
    with serving(http) as port:
        url = local_url(http, port)
        assert url.startswith("https://127.0.0.1:")
        with client(token=http.token, tls=tls) as caller:
            assert caller.get(f"{url}/metrics").status_code == 200
        for other in (stranger, TLS(), None):
            with (
                client(token=http.token, tls=other) as caller,
                pytest.raises(httpx.ConnectError, match="certificate"),
            ):
                caller.get(f"{url}/healthz")
        with client(tls=tls) as caller:
            assert caller.get(f"{url}/metrics").status_code == 401
            with pytest.raises(httpx.ConnectError, match="mismatch"):
                caller.get(
                    url.replace("127.0.0.1", "localhost")
                )  # the certificate does not name it
            with pytest.raises(httpx.RemoteProtocolError):
                caller.get(f"http://127.0.0.1:{port}/healthz")


def test_a_wrong_certificate_is_told_before_anything_is_served(tmp_path: Path) -> None:
    tls, other = make_certificates(tmp_path / "a"), make_certificates(tmp_path / "b")
    (tmp_path / "empty.pem").touch()
    wrong = {
        "needs http.tls.certificate and": TLS(certificate_authority=tls.certificate_authority),
        "No such file": tls.model_copy(update={"certificate": tmp_path / "absent.pem"}),
        "mismatch": tls.model_copy(update={"private_key": other.private_key}),
        "cannot be used": tls.model_copy(update={"certificate": tmp_path / "empty.pem"}),
    }
    wrong["without a password"] = lock_key(tls)
    for message, tls in wrong.items():
        with pytest.raises(UserError, match=message) as caught, serving(Http(tls=tls)):
            pass
        assert "\n" not in str(caught.value)
    for authority in ("absent.pem", "empty.pem"):
        with pytest.raises(UserError, match=r"certificate_authority = .*give a readable PEM file"):
            client(tls=TLS(certificate_authority=tmp_path / authority))


def check(config: RunConfig) -> None:
    """Check the certificates of a run with these settings."""
    check_certificates(config.redis, config.rpc, config.http)


def test_every_connection_of_a_run_is_checked_beforehand(tmp_path: Path) -> None:
    tls = make_certificates(tmp_path)
    for names_no_server, section in enumerate(("redis", "rpc", "http")):
        good = parse_run_config(
            {"run": "r", "model": {"path": "m"}, section: {"tls": tls.model_dump()}}, source="test"
        )
        check(good)
        wrong = {"tls": {"certificate_authority": str(tmp_path / "absent.pem")}}
        with pytest.raises(UserError, match=rf"{section}\.tls"):
            check(
                parse_run_config(
                    {"run": "r", "model": {"path": "m"}, section: wrong}, source="test"
                )
            )
        authority_alone = {"tls": {"certificate_authority": str(tls.certificate_authority)}}
        config = parse_run_config(
            {"run": "r", "model": {"path": "m"}, section: authority_alone}, source="test"
        )
        if names_no_server == 0:
            check(config)
        else:
            with pytest.raises(UserError, match=rf"{section}\.tls: a server needs"):
                check(config)


def test_a_main_loop_that_hangs_is_seen_on_healthz(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("rollcast.connections.http.time.monotonic", lambda: now[0])
    heartbeat = Heartbeat(30.0)
    now[0] += 30.0
    assert heartbeat() == (True, "ok")
    now[0] += 12.0
    assert heartbeat() == (False, "the main loop has not turned for 42 s")
    heartbeat.beat()
    assert heartbeat() == (True, "ok")
    monkeypatch.undo()
    state = [True, "ok"]
    routes = service_routes(
        Exporter("r").render, lambda: (True, "ok"), lambda: (bool(state[0]), str(state[1]))
    )
    server = HttpServer(routes, listen("127.0.0.1", 0, setting="port"), Http())
    server.start()
    try:
        url = f"http://127.0.0.1:{server.port}"
        assert httpx.get(f"{url}/healthz").text == "ok\n"
        state[:] = [False, "hangs"]
        answer = httpx.get(f"{url}/healthz")
        assert (answer.status_code, answer.text) == (503, "hangs\n")
        assert httpx.get(f"{url}/readyz").status_code == 200
    finally:
        server.stop()


def test_connections_are_bounded_and_idle_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollcast.connections.http.MAX_CONNECTIONS", 4)
    with serving(Http()) as port:
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(6)]
        try:
            assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
            for connection in idle[:3]:  # of six and the one that was answered, four may stay
                connection.settimeout(10.0)
                assert connection.recv(1) == b""
        finally:
            for connection in idle:
                connection.close()


def test_why_nothing_can_listen_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UserError, match=rf"http_port = {port}: 127\.0\.0\.1 .*in use.*choose a free port"
        ):
            listen("127.0.0.1", port, setting="http_port")
    for elsewhere in ("192.0.2.1", "no such host"):
        with pytest.raises(
            UserError, match=f"http_port = 0: {elsewhere} .*bind an address of this machine"
        ):
            listen(elsewhere, 0, setting="http_port")


@pytest.mark.parametrize(
    ("bind", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "[::1]"),
        ("fd00::7", "[fd00::7]"),
        ("node", "node"),
    ],
)
def test_the_address_on_this_machine(bind: str, host: str) -> None:
    assert local_url(Http(bind=bind), 80) == f"http://{host}:80"
    assert local_url(Http(bind=bind, tls=TLS()), 80) == f"https://{host}:80"


def minimal(**http: object) -> dict[str, object]:
    return {"run": "r", "model": {"path": "m"}, "http": http}


def test_the_environment_wins_over_the_file_and_an_empty_token_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def token(config: RunConfig) -> str | None:
        return config.http.token.get_secret_value() if config.http.token else None

    monkeypatch.delenv("ROLLCAST_HTTP_TOKEN", raising=False)
    assert token(parse_run_config(minimal(), source="test")) is None
    assert token(parse_run_config(minimal(token="file"), source="test")) == "file"
    with pytest.raises(UserError, match=r"test: http\.token .*is wrong"):
        parse_run_config(minimal(token=""), source="test")
    monkeypatch.setenv("ROLLCAST_HTTP_TOKEN", "of-the-variable")
    config = parse_run_config(minimal(token="file", bind="::1"), source="test")
    assert (token(config), config.http.bind) == ("of-the-variable", "::1")
    assert "of-the-variable" not in repr(config)


def test_readers_present_the_token_and_verify(tmp_path: Path) -> None:
    http = Http(tls=make_certificates(tmp_path / "tls"), token=SecretStr(TOKEN))
    exporter = Exporter("r")
    exporter.set(trainer_metrics.TRAINER_STEP, 7)
    config = parse_run_config({**minimal(), "folder": str(tmp_path)}, source="test")
    config = config.model_copy(update={"http": http})
    stranger = http.model_copy(update={"token": SecretStr("wrong")})
    reader, refused_reader = (
        StatusReader(config),
        StatusReader(config.model_copy(update={"http": stranger})),
    )
    with serving(http, exporter) as port:
        publish_port(config.run_folder, "trainer", port)
        assert reader.read().step == 7
        assert refused_reader.read().step == 0
        page = MetricsPage(f"{local_url(http, port)}/metrics", http)
        assert any(sample.name == trainer_metrics.TRAINER_STEP.name for sample in page.read())
        page.close()
        refused = MetricsPage(f"{local_url(http, port)}/metrics", stranger)
        with pytest.raises(SourceAway, match="401"):
            refused.read()
        refused.close()
    # Both readers still hold a connection: the server has gone all the same.
    assert reader.read().step == 0
    assert refused_reader.read().step == 0


def test_the_forecaster_reads_and_serves_behind_token_and_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real process: its scrape of the trainer's page, and its own page and API."""
    tls = make_certificates(tmp_path / "tls")
    http = Http(tls=tls, token=SecretStr(TOKEN))
    settings = json.loads(tls.model_dump_json())
    config = run_file(
        tmp_path,
        {"kind": "scrape", "every_seconds": 0.2},
        http={"tls": settings, "token": "overruled"},
    )
    monkeypatch.setenv("ROLLCAST_HTTP_TOKEN", TOKEN)
    with running(config, tmp_path) as service, TrainerPage(http=http) as page:
        publish_port(tmp_path / "demo", "trainer", page.port)
        for reading in record()[:10]:
            page.show(reading)
        url = local_url(http, service.port)
        with client(token=http.token, tls=tls) as caller:
            wait_for(lambda: caller.get(f"{url}/api/runs/demo/forecast").status_code == 200)
            assert "rollcast_forecast" in caller.get(f"{url}/metrics").text
        with client(tls=tls) as stranger:
            assert stranger.get(f"{url}/healthz").text == "ok\n"
            assert stranger.get(f"{url}/readyz").status_code == 200
            for path in (
                "/",
                "/page.js",
                "/metrics",
                "/openapi.json",
                "/api/runs",
                "/api/runs/demo/forecast",
            ):
                assert stranger.get(url + path).status_code == 401, path
            assert stranger.post(f"{url}/api/fit", json={}).status_code == 401
        assert service.stop() == 0
