from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.cli.demo import free_name
from rollcast.cli.main import SERVICE_EXAMPLES
from rollcast.config.recipe import Recipe
from rollcast.config.run import load_run_config
from tests.cli import command

ROOT = Path(__file__).parents[2]
RUN_FILES = sorted(path for path in (ROOT / "configs").rglob("*.yaml"))


@pytest.mark.parametrize("path", RUN_FILES, ids=lambda path: path.stem)
def test_every_shipped_run_file_is_right(path: Path) -> None:
    load_run_config(path)


def test_there_is_a_demo_among_the_shipped_run_files() -> None:
    assert "demo" in {path.stem for path in RUN_FILES}


def test_help_names_the_commands_and_version_answers() -> None:
    shown = command.process("--help")
    assert shown.returncode == 0
    for name in ("demo", "up", "config", "generator", "trainer", "forecaster", "version"):
        assert f"\n  {name} " in shown.stdout
    assert command.process("version").stdout == command.rollcast("--version").stdout != ""


def test_config_check_names_field_value_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "run: Bad Name\nmodel: {path: m}\nrecipe: {loss: {kind: cispo, ratio_max: -1}}\nextra: 1\n"
    )
    checked = command.rollcast("config", "check", file)
    assert checked.returncode == 2
    assert "recipe.loss.ratio_max = -1 is wrong: must be greater than 0" in checked.stderr
    assert "run = 'Bad Name' is wrong" in checked.stderr
    assert "extra is not a setting" in checked.stderr
    assert "Traceback" not in checked.stderr
    # Elsewhere than in the repository, where `make demo` leaves a run of that name.
    assert (
        command.rollcast("config", "check", ROOT / "configs/demo.yaml", folder=tmp_path).returncode
        == 0
    )


def test_config_check_finds_all_that_can_be_known_without_a_start(tmp_path: Path) -> None:
    """Each on the old command: `right`."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"prompt": "{i}", "answer": "1"}}\n' for i in range(30)))
    file = tmp_path / "run.yaml"
    dataset = {"kind": "jsonl", "name": "d", "path": str(rows), "verifier": "mathh"}
    settings: dict[str, Any] = {
        "run": "r",
        "folder": str(tmp_path / "runs"),
        "model": {"path": str(tmp_path / "none")},
        "tasks": {"dataset": dataset, "evaluation": {"num_prompts": 10}},
        "recipe": {"prompts_per_step": 21},
        "generator": {"tensor_parallel": 2_000},
    }
    file.write_text(json.dumps(settings))
    checked = command.rollcast("config", "check", str(file))
    assert checked.returncode == 2
    for sentence in (
        "budget sets neither steps nor device_hours",
        f"model.path = {tmp_path}/none: config.json cannot be read",
        "tasks.dataset.verifier = 'mathh': neither built in nor installed here",
        "recipe.prompts_per_step = 21: there are only 20 training prompts",
        "generator.tensor_parallel = 2000: this machine has no GPU",
    ):
        assert sentence in checked.stderr
    rows.write_text('{"prompt": "1", "answer": "1"}\n{"prompt": "2"\n')
    assert (
        "rows.jsonl, line 2: not a JSON object"
        in command.rollcast("config", "check", str(file)).stderr
    )
    rows.unlink()
    assert "tasks.dataset.path" in command.rollcast("config", "check", str(file)).stderr
    settings["budget"] = {"steps": 5}
    file.write_text(json.dumps(settings))
    elsewhere = command.rollcast("config", "check", str(file), "--elsewhere")
    assert elsewhere.returncode == 0, elsewhere.stderr
    assert "not checked: model, data, verifiers" in elsewhere.stdout


def test_config_schema_describes_every_setting() -> None:
    schema = json.loads(command.rollcast("config", "schema").stdout)
    assert schema["properties"]["seed"]["description"].startswith("Seed of prompt order")


@pytest.mark.parametrize("service", SERVICE_EXAMPLES)
def test_a_starter_becomes_the_service(service: str) -> None:
    """Of generator, trainer and forecaster: its own help, with an example before it."""
    shown = command.process(service, "--help")
    assert shown.returncode == 0
    assert shown.stdout.startswith(f"Example:\n  {SERVICE_EXAMPLES[service]}\n")
    assert "--config" in shown.stdout
    assert f"rollcast.{service}" in shown.stdout


def good_settings(folder: Path) -> dict[str, Any]:
    """All that `up` looks at before it starts anything is right; paths are relative to `folder`."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    (folder / "model" / "model.safetensors").write_bytes(b"0" * 1000)
    (folder / "rows.jsonl").write_text(
        "".join(f'{{"prompt": "{i}", "answer": "1"}}\n' for i in range(30))
    )
    return {
        "run": "r",
        "model": {"path": "./model"},
        "tasks": {
            "dataset": {"kind": "jsonl", "name": "d", "path": "rows.jsonl"},
            "evaluation": {"num_prompts": 10},
        },
        "recipe": {"prompts_per_step": 8},
        "budget": {"steps": 1},
        "trainer": {},
        "redis": {"port": 0},
        "rpc": {"port": 0},
        "forecaster": {"http_port": 0},
    }


def wrong_setting(folder: Path, settings: dict[str, Any], taken_port: int) -> str:
    settings["run"] = "Bad Name"
    return f"{folder}/run.yaml: run = 'Bad Name' is wrong"


def wrong_model(folder: Path, settings: dict[str, Any], taken_port: int) -> str:
    settings["model"]["path"] = "/no/such"
    return "model.path = /no/such: config.json cannot be read (No such file"


def unreadable_model(folder: Path, settings: dict[str, Any], taken_port: int) -> str:
    """A loop of links: even root cannot read it."""
    (folder / "loop").symlink_to("loop")
    settings["model"]["path"] = "./loop"
    return "model.path = ./loop: config.json cannot be read (Too many levels"


def row_without_an_answer(folder: Path, settings: dict[str, Any], taken_port: int) -> str:
    with (folder / "rows.jsonl").open("a") as rows:
        rows.write('{"prompt": "31"}\n')
    return "data set rows.jsonl, line 31: field 'answer' is missing"


def port_in_use(folder: Path, settings: dict[str, Any], taken_port: int) -> str:
    settings["rpc"]["port"] = taken_port
    return f"rpc.port = {taken_port}: 127.0.0.1 cannot listen on it"


def no_free_disk(folder: Path, settings: dict[str, Any], taken_port: int) -> str:
    settings["trainer"]["keep_checkpoints"] = 10**15
    return f"folder = {folder}/runs: "


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    "spoil",
    [
        wrong_setting,
        wrong_model,
        unreadable_model,
        row_without_an_answer,
        port_in_use,
        no_free_disk,
    ],
    ids=lambda spoil: spoil.__name__,
)
def test_up_with_bad_input_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, taken_port: int, spoil: Callable[[Path, dict[str, Any], int], str]
) -> None:
    settings = good_settings(tmp_path)
    sentence = spoil(tmp_path, settings, taken_port)
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(settings))
    before = sorted(tmp_path.rglob("*"))
    started = command.rollcast("up", "--config", file, folder=tmp_path)
    assert started.returncode == 2, started.stderr
    assert started.stderr.count("\n") == 1
    assert started.stderr.startswith(f"error: {sentence}")
    assert started.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_generators_of_the_command_line_stand_above_those_of_the_file(tmp_path: Path) -> None:
    """Told by what is refused: two generators from the last core on,
    where the file asks for one.
    """
    settings = good_settings(tmp_path)
    last = max(os.sched_getaffinity(0))
    settings |= {"generator": {"cpu": last}, "local": {"generators": 1}}
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(settings))
    started = command.rollcast("up", "--config", file, "--generators", "2", folder=tmp_path)
    assert started.returncode == 2
    assert (
        f"generator.cpu = {last}: local.generators = 2 take a core each from there on"
        in started.stderr
    )


def test_the_demo_looks_at_ports_and_folder_before_it_trains_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken_port: int
) -> None:
    monkeypatch.setenv("ROLLCAST_CACHE", str(tmp_path / "cache"))
    settings = yaml.safe_load((ROOT / "configs/demo.yaml").read_text())
    settings["rpc"]["port"] = taken_port
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(settings))
    started = command.rollcast("demo", "--config", file, folder=tmp_path)
    assert (started.returncode, started.stdout) == (2, "")
    assert started.stderr.startswith(
        f"error: rpc.port = {taken_port}: 127.0.0.1 cannot listen on it"
    )
    (tmp_path / "taken").touch()
    started = command.rollcast("demo", "--folder", "taken", folder=tmp_path)
    assert (started.returncode, started.stdout) == (2, "")
    assert started.stderr.startswith("error: folder = taken: cannot be written")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.yaml", "taken"]


def test_a_demo_takes_the_first_name_that_no_former_run_has(tmp_path: Path) -> None:
    assert free_name("demo", tmp_path) == "demo"
    for name in ("demo", "demo-2", "demo-4"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
    (tmp_path / "demo-3").mkdir()
    assert free_name("demo", tmp_path) == "demo-3"


def test_the_scalerl_file_is_the_default_and_each_leave_one_out_changes_one_setting() -> None:
    scalerl = load_run_config(ROOT / "configs/recipes/scalerl.yaml").recipe
    assert scalerl == Recipe()
    changed = [
        [
            name
            for name in Recipe.model_fields
            if getattr(load_run_config(path).recipe, name) != getattr(scalerl, name)
        ]
        for path in sorted((ROOT / "configs/recipes/leave-one-out").glob("*.yaml"))
    ]
    assert sorted(changed) == sorted(
        [
            ["advantage_normalisation"],
            ["aggregation"],
            ["length_control"],
            ["lm_head"],
            ["loss"],
            ["no_positive_resampling"],
            ["schedule"],
            ["zero_variance_filter"],
        ]
    )
