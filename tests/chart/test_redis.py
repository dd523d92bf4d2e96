"""The chart's own Redis: as rendered it runs, with a password that no command line shows."""

from __future__ import annotations

import base64
import copy
import json
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError
from redis.retry import Retry

from rollcast.rollouts.keys import Keys
from rollcast.rollouts.redis_users import COMMANDS, permissions
from testkit.system.harness import wait_for
from tests.chart.local_cluster import LocalCluster
from tests.chart.rendering import (
    CHART,
    Object,
    helm_errors,
    merged,
    of_kind,
    one,
    pods,
    profile,
    render,
)
from tests.chart.value_sets import VALUE_SETS

PASSWORDS = (
    "0f3a" * 12,
    "two words",
    "\"quoted\" 'twice'",
    r"back\slash \x41 $HOME `id`",
    "ends with a line\n",
    "Grüße",
)
AT_ONCE = Retry(NoBackoff(), 0)


@pytest.fixture
def short_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pods-") as folder:
        yield Path(folder)


USERS = "".join(
    f'user {role} on #$(digest "$REDIS_{role.upper()}_PASSWORD") '
    f"{permissions(role, Keys('RUN').pattern)}\n"
    for role in sorted(COMMANDS)
)
START = f"""digest() {{ printf %s "$1" | sha256sum | cut -c 1-64; }}
exec redis-server - "$@" <<END
user default off
{USERS}END
"""
"""How Redis starts: printf is the shell's own, so that no password is in a command line."""


def command_lines(container: Object) -> list[str]:
    """What the cluster executes in the container, its probes too; without START."""
    handlers = [
        container.get(name, {}) for name in ("startupProbe", "readinessProbe", "livenessProbe")
    ]
    handlers += container.get("lifecycle", {}).values()
    words = [handler.get("exec", {}).get("command", []) for handler in handlers]
    words.append([*container.get("command", []), *container.get("args", [])])
    run = re.compile(r"(?<=~rollcast:\{)[a-z0-9-]+(?=\})")
    return [" ".join(word for word in line if run.sub("RUN", word) != START) for line in words]


def secrets_shown(container: Object) -> list[tuple[str, str]]:
    """Secret variables and the command lines into which the cluster, by $(NAME), or a shell puts
    their values.
    """
    secrets: list[str] = []
    for entry in container.get("env", []):
        made_of_one = any(f"$({secret})" in entry.get("value", "") for secret in secrets)
        if made_of_one or "secretKeyRef" in entry.get("valueFrom", {}):
            secrets.append(entry["name"])
    lines = command_lines(container)
    return [
        (name, line)
        for name in secrets
        for line in lines
        if re.search(rf"\$[({{]?!?{name}\b", line)
    ]


@pytest.mark.parametrize("name", VALUE_SETS)
def test_no_command_line_holds_a_secret(name: str) -> None:
    """Everyone may read it who may list processes or read a container's definition on its
    machine.
    """
    for pod in pods(render(VALUE_SETS[name])):
        for container in pod.containers:
            assert not secrets_shown(container), (pod.name, container["name"])


@pytest.mark.parametrize(
    "line",
    [
        ["redis-cli", "-a", "$(REDIS_READER_PASSWORD)", "ping"],
        ["sh", "-c", "redis-cli -a $REDIS_READER_PASSWORD ping"],
        ["sh", "-c", 'redis-cli -a "${REDIS_READER_PASSWORD}" ping'],
        ["sh", "-c", "redis-cli -a ${REDISCLI_AUTH:-none} ping"],
        ["sh", "-c", "redis-cli -a $(printf %s $REDIS_READER_PASSWORD) ping"],
        ["sh", "-c", f"{START}redis-cli -a $REDIS_READER_PASSWORD ping"],
    ],
)
def test_a_secret_in_a_command_line_is_seen(line: list[str]) -> None:
    (pod,) = (pod for pod in pods(render(profile("cpu"))) if pod.role == "redis")
    for place in ("command", "startupProbe", "lifecycle"):
        (container,) = (copy.deepcopy(one) for one in pod.containers if one["name"] == "redis")
        run = {"exec": {"command": line}}
        container[place] = {"command": line, "lifecycle": {"preStop": run}}.get(place, run)
        shown = [text for _, text in secrets_shown(container)]
        assert shown
        assert all(line[0] in text for text in shown)


@pytest.fixture(scope="module")
def upgrade_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Object], Path]:
    """The chart as a cluster sees it in which the StatefulSet of these values runs: no test here
    has an API server.
    """

    def copied(values: Object) -> Path:
        chart = shutil.copytree(CHART, tmp_path_factory.mktemp("charts") / "rollcast")
        template = chart / "templates" / "redis" / "validate.yaml"
        asked = (
            'lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-redis" (include '
            '"rollcast.fullname" .))'
        )
        assert asked in template.read_text()
        (there,) = [
            item
            for item in of_kind(render(values), "StatefulSet")
            if item["metadata"]["name"] == "demo-rollcast-redis"
        ]
        template.write_text(template.read_text().replace(asked, f"fromJson `{json.dumps(there)}`"))
        return chart

    return copied


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ({}, {"config": {"budget": {"steps": 500}}}, ""),
        ({}, {"redis": {"persistence": {"size": "1024Mi"}}}, ""),
        (
            {},
            {"redis": {"persistence": {"size": "40Gi"}}},
            "redis.persistence.size = 40Gi: the running Redis has a claim",
        ),
        (
            {},
            {"redis": {"persistence": {"storageClass": "fast"}}},
            'redis.persistence.storageClass = "fast"',
        ),
        ({}, {"redis": {"persistence": {"enabled": False}}}, "redis.persistence.enabled = false"),
        ({"redis": {"persistence": {"enabled": False}}}, {}, "redis.persistence.enabled = true"),
    ],
)
def test_what_the_running_redis_cannot_become_is_refused_before_anything_is_changed(
    before: Object, after: Object, refused: str, upgrade_of: Callable[[Object], Path]
) -> None:
    """The API server refuses it only after other objects were changed: the trainer's new Job, for
    one.
    """
    path = upgrade_of(merged(profile("cpu"), before))
    if not refused:
        assert render(merged(profile("cpu"), after), path=path)
        return
    with pytest.raises(helm_errors.HelmError, match=re.escape(refused)):
        render(merged(profile("cpu"), after), path=path)


def test_a_secret_of_ones_own_that_lacks_a_users_password_is_refused(tmp_path: Path) -> None:
    chart = shutil.copytree(CHART, tmp_path / "rollcast")
    template = chart / "templates" / "validate.yaml"
    asked = '(lookup "v1" "Secret" .Release.Namespace $values.auth.existingSecret)'
    assert asked in template.read_text()
    there = {"data": {"redis-trainer-password": "eA==", "rpc-token": "eA=="}}
    template.write_text(template.read_text().replace(asked, f"(fromJson `{json.dumps(there)}`)"))
    with pytest.raises(helm_errors.HelmError, match="mine: the Secret has no key redis-generator"):
        render(merged(profile("cpu"), VALUE_SETS["own-secret"]), path=chart)


@pytest.mark.parametrize("password", PASSWORDS, ids=range(len(PASSWORDS)))
def test_redis_asks_for_the_very_password_and_ends_in_order(
    short_path: Path, password: str
) -> None:
    objects = copy.deepcopy(render(profile("cpu")))
    secret = one(objects, "Secret")["data"]
    for role in COMMANDS:
        text = base64.b64encode(f"{role}{password}".encode()).decode()
        secret[f"redis-{role}-password"] = text
    with LocalCluster(objects, short_path) as cluster:
        pod = cluster.pod("redis")
        process = pod.start("redis")

        def client_of(user: str, password: str | None) -> redis.Redis:
            return redis.Redis(pod.address, username=user, password=password, retry=AT_ONCE)

        with client_of("reader", f"reader{password}") as client:

            def answers() -> bool:
                assert process.poll() is None, pod.log("redis").read_text()
                try:
                    return bool(client.ping())
                except redis.BusyLoadingError:
                    return False
                except redis.AuthenticationError as error:
                    pytest.fail(str(error))
                except redis.ConnectionError:
                    return False

            wait_for(answers, 20, "Redis")
            assert client.info("memory")["maxmemory_policy"] == "noeviction"
            with pytest.raises(NoPermissionError):
                client.config_get("save")
        state = Keys("demo").state
        for role in ("trainer", "generator"):
            with client_of(role, f"{role}{password}") as client:
                client.hset(state, "name", "value")
                with pytest.raises(NoPermissionError):
                    client.hget(Keys("other").state, "name")
        strangers = [("trainer", f"generator{password}"), ("reader", f"reader{password}x")]
        for user, other in [*strangers, ("default", None), ("default", password)]:
            with client_of(user, other) as stranger, pytest.raises(redis.AuthenticationError):
                stranger.ping()
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"redis-server" in shown, "the shell gave way to it: it hears the signals itself"
        for line in (repr(process.args), shown.decode()):
            assert password.strip() not in line
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert "ready to exit" in pod.log("redis").read_text()
