"""Task folders in Harbor's format: which are read, and what is refused by its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollcast.config.environments.container import ContainerSettings
from rollcast.config.environments.harbor import HarborEnvironment
from rollcast.config.errors import UserError
from rollcast.environments.containers.errors import SpoiledError
from rollcast.environments.harbor.grading import parse_reward
from rollcast.environments.harbor.images import task_image
from rollcast.environments.harbor.play import task_folder, task_settings
from rollcast.environments.harbor.task import read_task, resolve_variables, task_folders
from rollcast.environments.kinds.harbor import asks_for_more, missing_in_rows, unset_variables
from testkit.harbor_tasks import TASK_FILE, UNSUPPORTED, write_task


def test_a_task_is_read_without_its_canary(tmp_path: Path) -> None:
    task = read_task(write_task(tmp_path / "hello"))
    assert task.instruction == "Write `hello` to the file /app/hello.txt.\n"
    assert task.file.environment.memory_mb == 128
    assert list(task.artifacts) == ["/logs/artifacts", "/app"]


@pytest.mark.parametrize("field", UNSUPPORTED)
def test_a_field_that_is_not_supported_is_refused_by_its_name(field: str, tmp_path: Path) -> None:
    old, new = UNSUPPORTED[field]
    assert TASK_FILE.count(old) == 1
    with pytest.raises(UserError) as refusal:
        read_task(write_task(tmp_path / "hello", TASK_FILE.replace(old, new)))
    assert f"{tmp_path / 'hello' / 'task.toml'}: {field}" in str(refusal.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gpus = 0", 'mcp_servers = []\nos = "linux"'),
        ("gpus = 0", "allow_internet = false"),
        ("memory_mb = 128\nstorage_mb = 64", 'memory = "2G"\nstorage = "512M"'),
        ('schema_version = "1.1"', 'version = "1.0"'),
        ('description = "Writes a file"', "anything = 1"),
        ("gpus = 0", 'network_mode = "public"'),
    ],
)
def test_a_value_that_asks_for_nothing_is_taken(old: str, new: str, tmp_path: Path) -> None:
    read_task(write_task(tmp_path / "hello", TASK_FILE.replace(old, new)))


@pytest.mark.parametrize(
    "name",
    [
        "environment/docker-compose.yaml",
        "tests/Dockerfile",
        "tests/.harborignore",
        "trajectory.json",
    ],
)
def test_a_file_that_is_not_supported_is_refused(name: str, tmp_path: Path) -> None:
    folder = write_task(tmp_path / "hello")
    (folder / name).write_text("x")
    with pytest.raises(UserError, match=f"{name}: is not supported"):
        read_task(folder)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("instruction.md", "instruction.md: cannot be read"),
        ("tests/test.sh", "test.sh: is missing"),
        ("environment/Dockerfile", "Dockerfile: is missing"),
    ],
)
def test_a_missing_file_is_named(name: str, sentence: str, tmp_path: Path) -> None:
    folder = write_task(tmp_path / "hello")
    (folder / name).unlink()
    with pytest.raises(UserError, match=sentence):
        read_task(folder)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("cpus = 1", "cpus = -1", "environment.cpus = -1 is not valid"),
        ("cpus = 1", "cpus = [", "is no TOML"),
        ("cpus = 1", f"cpus = {'1' * 5000}", "is no TOML"),
        ("build_timeout_sec = 300.0", "build_timeout_sec = inf", "build_timeout_sec = inf is not"),
        ("gpus = 0", 'docker_image = "--help"', "environment.docker_image = '--help' is not valid"),
        ('artifacts = ["/app"]', "artifacts = 3", "artifacts = 3 is not valid"),
    ],
)
def test_a_wrong_value_is_named(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        read_task(write_task(tmp_path / "hello", TASK_FILE.replace(old, new)))
    assert sentence in str(refusal.value)


def test_variables_may_be_those_of_this_machine() -> None:
    variables = {"A": "${HARBOR_A:-b}", "B": "plain ${HARBOR_A}", "C": "${HARBOR_C:-}"}
    assert resolve_variables(variables, {}) == {"A": "b", "B": "plain ${HARBOR_A}", "C": ""}
    assert resolve_variables(variables, {"HARBOR_A": "x"})["A"] == "x"


def test_variables_that_are_missing_or_secret_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    for name, sentence in (
        ("HARBOR_NOT_SET", "needs the variable HARBOR_NOT_SET"),
        ("OPENAI_API_KEY", "names the variable OPENAI_API_KEY, which no task gets"),
    ):
        changed = TASK_FILE.replace("${HARBOR_GREETING:-none}", f"${{{name}}}")
        task = read_task(write_task(tmp_path / "hello", changed))
        (said,) = unset_variables(task)
        assert sentence in said


def test_a_folder_or_a_pipe_is_no_task_file(tmp_path: Path) -> None:
    for make in (os.mkfifo, os.mkdir):
        folder = write_task(tmp_path / make.__name__)
        (folder / "task.toml").unlink()
        make(folder / "task.toml")
        with pytest.raises(UserError, match=r"task\.toml: is no file"):
            read_task(folder)


def test_tests_that_cannot_be_copied_are_refused_before_the_start(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "hello")
    (folder / "tests" / "link").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match="leads out of"):
        read_task(folder)


def test_rows_name_tasks_that_are_there(tmp_path: Path) -> None:
    write_task(tmp_path / "hello")
    settings = HarborEnvironment(name="hello", tasks=tmp_path)
    rows = [{"task": "hello"}, {"task": "goodbye"}, {"task": "goodbye"}]
    assert list(missing_in_rows(settings, "box", rows[:1])) == []
    (sentence,) = missing_in_rows(settings, "box", rows)
    assert sentence.startswith(
        f"box: row 2 of its data set: task = goodbye is no folder of {tmp_path}"
    )


def test_the_image_of_a_task_is_named_by_what_it_is_built_from(tmp_path: Path) -> None:
    first = read_task(write_task(tmp_path / "first"))
    same = read_task(write_task(tmp_path / "second"))
    assert task_image(first) == task_image(same)
    (same.folder / "environment" / "data.txt").write_text("other\n")
    assert task_image(first) != task_image(same)
    named = TASK_FILE.replace("gpus = 0", 'docker_image = "docker.io/library/debian:12"')
    assert task_image(read_task(write_task(tmp_path / "third", named))) == (
        "docker.io/library/debian:12"
    )


def test_a_task_may_ask_for_no_more_than_the_run_file_allows(tmp_path: Path) -> None:
    task = read_task(write_task(tmp_path / "hello"))
    allowed = HarborEnvironment(name="hello", tasks=tmp_path)
    assert list(asks_for_more(allowed, task, "box")) == []
    asked = task_settings(ContainerSettings(network="bridge"), task)
    assert (asked.memory_gib, asked.network) == (0.125, "bridge")
    less = allowed.model_copy(
        update={"container": ContainerSettings(memory_gib=0.1), "call_seconds": 419.0}
    )
    assert [sentence.partition(":")[0] for sentence in asks_for_more(less, task, "box")] == [
        "box.container.memory_gib = 0.1",
        "box.call_seconds = 419",
    ]


@pytest.mark.parametrize("name", [None, 3, "", "..", "../x", "a/b", "/etc"])
def test_a_row_names_a_folder_below_the_tasks(name: object) -> None:
    with pytest.raises(UserError, match="no name of a task's folder"):
        task_folder(Path("tasks"), {"task": name})


def test_the_data_set_of_a_folder(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_task(tmp_path / name)
    (tmp_path / "notes").mkdir()
    command = [sys.executable, "-m", "rollcast.environments.harbor"]
    ended = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["task"] for row in rows] == ["a", "b"]
    assert rows[0]["prompt"] == "Write `hello` to the file /app/hello.txt.\n"
    (tmp_path / "a" / "instruction.md").unlink()
    refused = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (UserError.exit_code, "")
    assert "instruction.md: cannot be read" in refused.stderr
    with pytest.raises(UserError, match=r"no folder with a task\.toml"):
        task_folders(tmp_path / "notes")


@pytest.mark.parametrize(
    ("name", "text", "reward"),
    [
        ("reward.txt", "1\n", 1.0),
        ("reward.txt", "0.25", 0.25),
        ("reward.json", "0.5", 0.5),
        ("reward.json", '{"reward": 1, "style": 0}', 1.0),
        ("reward.json", '{"accuracy": 0.75}', 0.75),
    ],
)
def test_a_reward_is_read(name: str, text: str, reward: float) -> None:
    assert parse_reward(name, text.encode()) == reward


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reward.txt", ""),
        ("reward.txt", "good"),
        ("reward.txt", "nan"),
        ("reward.json", "1e309"),
        ("reward.json", '{"a": 1, "b": 2}'),
        ("reward.json", '{"reward": "1"}'),
        ("reward.json", '{"reward": true}'),
        ("reward.json", "[" * 100_000),
        ("reward.json", "{}"),
    ],
)
def test_what_is_no_reward_is_no_verdict(name: str, text: str) -> None:
    with pytest.raises(SpoiledError):
        parse_reward(name, text.encode())
