"""The random secrets of a run: made for what the user has not set, kept where only the user reads
them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig, load_run_config, parse_run_config
from rollcast.local import preflight
from rollcast.local.up import with_secrets
from rollcast.runfolder import folder as run_folder
from rollcast.runfolder.run_secrets import with_run_secrets


def parsed(folder: Path, **sections: Any) -> RunConfig:
    return parse_run_config(
        {"run": "r", "folder": str(folder), "model": {"path": "m"}, **sections}, source="test"
    )


def secrets_of(config: RunConfig) -> list[str | None]:
    found = (config.redis.password, config.rpc.token, config.grader.token)
    return [None if one is None else one.get_secret_value() for one in found]


def test_each_start_has_others_that_are_long(tmp_path: Path) -> None:
    config = parsed(tmp_path, redis={"port": 0})
    starts = [
        secrets_of(with_secrets(config, embed_redis=True, embed_grader=True)) for _ in range(2)
    ]
    made = [secret for start in starts for secret in start]
    assert len(set(made)) == 6
    assert all(secret is not None and len(secret) >= 32 for secret in made)


def test_what_the_user_has_set_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = parsed(
        tmp_path, redis={"port": 0, "password": "a"}, rpc={"token": "b"}, grader={"token": "c"}
    )
    assert secrets_of(with_secrets(given, embed_redis=True, embed_grader=True)) == ["a", "b", "c"]
    for name in ("REDIS_PASSWORD", "RPC_TOKEN", "GRADER_TOKEN"):
        monkeypatch.setenv(f"ROLLCAST_{name}", name)
    given = parsed(tmp_path, redis={"port": 0})
    made = with_secrets(given, embed_redis=True, embed_grader=True)
    assert secrets_of(made) == ["REDIS_PASSWORD", "RPC_TOKEN", "GRADER_TOKEN"]


def test_a_redis_or_a_grader_of_the_users_own_is_given_none(tmp_path: Path) -> None:
    config = parsed(tmp_path, redis={"port": 6379})
    password, token, grader_token = secrets_of(
        with_secrets(config, embed_redis=False, embed_grader=False)
    )
    assert (password, grader_token) == (None, None)
    assert token is not None


def start(config: RunConfig) -> RunConfig:
    started = with_secrets(
        preflight.resolve_ports(config), embed_redis=config.redis.is_embedded, embed_grader=False
    )
    write_resolved(started, started.run_folder / "run.json")
    return started


def test_a_generator_with_the_users_own_run_file_joins_the_run_under_way(tmp_path: Path) -> None:
    given = parsed(tmp_path, redis={"port": 0})
    with run_folder.lock_folder(given.run_folder):
        started = start(given)
        assert (given.run_folder / "run.json").stat().st_mode & 0o777 == 0o600
        assert load_run_config(given.run_folder / "run.json") == started
        for same in (given, parsed(tmp_path)):  # which leaves out what `up` filled in
            joined = with_run_secrets(same)
            assert (joined.redis, joined.rpc) == (started.redis, started.rpc)
        elsewhere = parsed(
            tmp_path, redis={"host": "redis.example"}, rpc={"port": started.rpc.port + 1}
        )
        assert with_run_secrets(elsewhere) == elsewhere
        own = parsed(tmp_path, redis={"password": "a"}, rpc={"token": "b"}, grader={"token": "c"})
        assert with_run_secrets(own) == own
    assert with_run_secrets(given) == given  # the run is over
