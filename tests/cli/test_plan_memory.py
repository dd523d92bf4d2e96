"""`rollcast plan memory`, and what `config check` and `up` refuse before a GPU is taken."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rollcast.config.errors import UserError
from rollcast.config.run import load_run_config
from rollcast.local import preflight
from testkit.model_shapes import make_header, make_shape, write_model
from testkit.published_models import QWEN3_8B, QWEN3_30B_A3B
from tests.cli.command import refusal, rollcast

TOO_SMALL = "trainer rank 0 of 8 needs"


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """Of a mixture of experts of which config.json and the header of the weights are here."""
    model = tmp_path / "model"
    write_model(model, QWEN3_30B_A3B)
    file = tmp_path / "run.yaml"
    file.write_text(
        json.dumps(
            {
                "run": "moe",
                "model": {"path": str(model)},
                "tasks": {"dataset": {"kind": "arithmetic"}},
                "budget": {"steps": 1},
                "trainer": {"activation_checkpointing": True},
                "generator": {"slots": 400},
            }
        )
    )
    return file


def test_every_rank_and_a_generator_are_told_part_by_part(run_file: Path) -> None:
    done = rollcast(
        "plan", "memory", "--config", run_file, "--gpu", 192, "--trainer-ranks", 8, "--json"
    )
    answer = json.loads(done.stdout)
    assert done.returncode == (0 if answer["fits"] else 1)
    assert [rank["rank"] for rank in answer["trainer"]] == list(range(8))
    for rank in answer["trainer"]:
        assert rank["total"] == sum(rank["parts"].values()) == max(rank["moments"].values())
        assert rank["free"] == 192_000_000_000 - rank["total"]
    on_the_way = answer["trainer"][0]["parts"]["staging"]
    assert on_the_way == answer["generator"]["parts"]["staging"] < 1_000_000_000, (
        "versions wait on the host"
    )
    assert answer["version"] == 2 * answer["parameters"]
    assert answer["generator"]["kv_bytes_of_a_slot"] == 16_384 * 48 * 2 * 4 * 128 * 2
    host = answer["host"]
    assert host["trainer_machine"]["checkpoint"] == sum(
        rank["checkpoint"] for rank in host["ranks"]
    )
    assert host["generator"]["staging"] == answer["version"]


def test_host_memory_is_told_and_held_against_what_there_is(run_file: Path) -> None:
    arguments = ("plan", "memory", "--config", run_file, "--gpu", 192, "--trainer-ranks", 8)
    done = rollcast(*arguments)
    assert done.returncode == 0, done.stdout
    assert "Host memory: the first trainer machine's 8 ranks" in done.stdout
    done = rollcast(*arguments, "--trainer-memory", "300Gi", "--generator-memory", "32Gi")
    assert done.returncode == 1
    refused = [
        line
        for line in done.stdout.splitlines()
        if line.startswith("does not fit: host memory of a ")
    ]
    assert len(refused) == 2
    assert (
        rollcast(*arguments, "--trainer-memory", "1Ti", "--generator-memory", "128Gi").returncode
        == 0
    )


def test_what_does_not_fit_is_said_with_the_setting_and_ends_with_1(run_file: Path) -> None:
    done = rollcast("plan", "memory", "--config", run_file, "--gpu", 40, "--trainer-ranks", 8)
    assert done.returncode == 1
    header, *rest = done.stdout.splitlines()
    assert header.split() == ["GB", "trainer", "0-7", "generator"]
    assert [line.split()[0] for line in rest[:3]] == ["weights", "gradients", "optimizer"]
    assert sum(line.startswith("does not fit: ") for line in rest) == 2
    assert any(line.startswith("does not fit: generator.") for line in rest)
    assert any(line.endswith("train on 19 ranks") for line in rest)


def test_a_machine_without_gpus_is_planned_as_one(run_file: Path) -> None:
    done = rollcast("plan", "memory", "--config", run_file, "--cpu", 2000)
    assert done.returncode == 0, done.stdout
    assert "Together: " in done.stdout
    assert "free" not in done.stdout


def test_check_refuses_in_one_sentence_what_cannot_fit_the_gpus_that_are_named(
    run_file: Path, tmp_path: Path
) -> None:
    arguments = (
        "config",
        "check",
        str(run_file),
        "--elsewhere",
        "--gpu",
        "24",
        "--trainer-ranks",
        "8",
    )
    trainer, generator = refusal(*arguments).splitlines()
    assert TOO_SMALL in trainer
    assert "generator" in generator
    write_model(tmp_path / "smaller", QWEN3_8B)
    smaller = ("--model-config", tmp_path / "smaller" / "config.json")
    done = rollcast(*arguments[:4], "--gpu", "192", "--trainer-ranks", "8", *smaller)
    assert done.returncode == 0, done.stderr
    assert "whether the model fits the memory" not in done.stdout
    assert "caution: generator.slots = 400" in done.stdout


def test_check_says_that_memory_was_not_looked_at_where_no_gpu_is_known(run_file: Path) -> None:
    done = rollcast("config", "check", run_file, "--elsewhere")
    assert done.returncode == 0
    assert done.stdout.rstrip().endswith("whether the model fits the memory")


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that reports two GPUs, and a torch that is no build for CPUs."""
    driver = tmp_path / "bin" / "nvidia-smi"
    driver.parent.mkdir()
    driver.write_text("#!/bin/sh\nprintf '24576\\n81559\\n'\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(driver.parent), prepend=":")
    metadata = tmp_path / "site" / "torch-2.13.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
    monkeypatch.syspath_prepend(tmp_path / "site")


@pytest.mark.usefixtures("gpus")
def test_up_refuses_what_the_driver_says_is_too_small(
    run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_run_config(run_file)
    config = config.model_copy(update={"redis": config.redis.model_copy(update={"port": 0})})
    too_small = r"trainer rank 0 of 1 needs .* GB .*, and a GPU has 25\.8 GB"
    with pytest.raises(UserError, match=too_small):
        preflight.check(config)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert preflight.check(config) is not None, "a run on the CPU does not need the GPUs' memory"


class Hub(BaseHTTPRequestHandler):
    """Has one model."""

    files: ClassVar = {"config.json": json.dumps(QWEN3_8B).encode()}
    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        found = self.files.get(self.path.removeprefix("/Qwen/Qwen3-8B/resolve/main/"))
        self.send_response(404 if found is None else 200)
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    Hub.asked = []
    Hub.files["model.safetensors"] = make_header(dict(make_shape(QWEN3_8B).weights()))
    server = HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_TOKEN", "secret")
    yield Hub
    server.shutdown()
    server.server_close()


def named(run_file: Path, model: str) -> Path:
    settings = json.loads(run_file.read_text())
    run_file.write_text(json.dumps(settings | {"model": {"path": model}}))
    return run_file


def test_a_name_is_looked_up_on_the_hub(run_file: Path, hub: type[Hub]) -> None:
    done = rollcast(
        "plan", "memory", "--config", named(run_file, "Qwen/Qwen3-8B"), "--gpu", 192, "--json"
    )
    assert json.loads(done.stdout)["parameters"] == 8_190_735_360
    names = ("config.json", "model.safetensors")
    assert hub.asked == [(f"/Qwen/Qwen3-8B/resolve/main/{name}", "Bearer secret") for name in names]


def test_a_name_that_was_fetched_before_is_not_looked_up(
    run_file: Path, hub: type[Hub], tmp_path: Path
) -> None:
    cached = tmp_path / "hub" / "hub" / "models--Qwen--Qwen3-8B"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("abc")
    write_model(cached / "snapshots" / "abc", QWEN3_8B)
    done = rollcast(
        "plan", "memory", "--config", named(run_file, "Qwen/Qwen3-8B"), "--gpu", 192, "--json"
    )
    assert json.loads(done.stdout)["parameters"] == 8_190_735_360
    assert hub.asked == []


def test_a_name_that_the_hub_lacks_is_one_sentence(run_file: Path, hub: type[Hub]) -> None:
    said = refusal(
        "plan", "memory", "--config", str(named(run_file, "nobody/nothing")), "--gpu", "80"
    )
    assert said.count("\n") == 0
    assert said.startswith(
        "model.path = nobody/nothing: is not a folder on this machine, and http://127.0.0.1"
    )
    assert said.endswith("give --model-config FILE, the model's config.json")
    assert hub.asked


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"model_type": "rwkv"}', "model_type 'rwkv' is not one whose memory is counted"),
        ('{"model_type": "llama"}', "hidden_size = None is not a size"),
    ],
)
def test_a_config_that_cannot_be_counted_is_one_sentence(
    run_file: Path, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "model" / "config.json").write_text(text)
    sentence = refusal("plan", "memory", "--config", str(run_file), "--gpu", "80")
    assert said in sentence
    assert sentence.count("\n") == 0


def test_an_architecture_that_is_not_counted_keeps_nothing_from_being_checked(
    run_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "model" / "config.json").write_text('{"model_type": "rwkv"}')
    done = rollcast("config", "check", run_file, "--elsewhere", "--gpu", 80)
    assert done.returncode == 0
    assert "whether the model fits the memory" in done.stdout


def test_gpus_or_none(run_file: Path) -> None:
    said = refusal("plan", "memory", "--config", str(run_file), "--gpu", "80", "--cpu", "24")
    assert said == "--gpu 80, --cpu 24: a run is on GPUs or on none; give one of the two"


def test_check_predicts_who_waits_on_gpus_and_says_nothing_of_it_without(run_file: Path) -> None:
    on_gpus = (
        "config",
        "check",
        run_file,
        "--elsewhere",
        "--gpu",
        "192",
        "--trainer-ranks",
        "8",
        "--generators",
        "4",
    )
    short = json.loads(rollcast(*on_gpus, "--json", "--mean-tokens", "2000").stdout)["predicted"]
    usual = json.loads(rollcast(*on_gpus, "--json").stdout)["predicted"]
    assert short["generator_tokens_per_second"] > usual["generator_tokens_per_second"]
    assert (usual["card"], usual["generators"], usual["trainer_ranks"]) == ("B200", 4, 8)
    as_a100 = json.loads(
        rollcast(*on_gpus, "--json", "--card", "a100-80gb", "--mfu", "0.4").stdout
    )["predicted"]
    faster = 312 * 0.4 / (2250 * 0.149)
    assert usual["update_seconds"] / as_a100["update_seconds"] == pytest.approx(faster, rel=0.02)
    assert as_a100["generator_tokens_per_second"] < usual["generator_tokens_per_second"]
    without = rollcast("config", "check", run_file, "--elsewhere")
    planned = rollcast("plan", "memory", "--config", run_file, "--cpu", 2000)
    assert "predicted" not in without.stdout + planned.stdout
    assert (
        json.loads(rollcast("config", "check", run_file, "--elsewhere", "--json").stdout)[
            "predicted"
        ]
        is None
    )


def test_check_says_what_an_expectation_may_be(run_file: Path) -> None:
    on_gpus = (
        "config",
        "check",
        str(run_file),
        "--elsewhere",
        "--gpu",
        "192",
        "--trainer-ranks",
        "8",
    )
    assert "--card TPU: is not a GPU whose rates are known" in refusal(*on_gpus, "--card", "TPU")
    assert "--mean-tokens 14336: must be positive and at most 13619" in refusal(
        *on_gpus, "--mean-tokens", "14336"
    )


def test_blocks_of_8_bits_need_a_compiler_on_a_gpu(run_file: Path) -> None:
    settings = json.loads(run_file.read_text())
    settings["model"]["dtype"] = "bfloat16"
    settings["generator"]["engine"] = {"quantization": "fp8_per_block"}
    run_file.write_text(json.dumps(settings))
    on_gpus = ("config", "check", run_file, "--elsewhere", "--gpu", "192", "--trainer-ranks", "8")
    said = rollcast(*on_gpus).stdout
    assert "caution: generator.engine.quantization = fp8_per_block: on an H100 or newer" in said
    assert "nvcc" not in rollcast("config", "check", run_file, "--elsewhere").stdout
    settings["generator"]["engine"] = {"quantization": "fp8_per_channel"}
    run_file.write_text(json.dumps(settings))
    assert "nvcc" not in rollcast(*on_gpus).stdout
