"""A real vLLM server as a teacher: its log-probs of sampled tokens are those of plain Hugging Face
code.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
import transformers

from rollcast.config.distillation import Distillation, EndpointTeacher
from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.local.ports import free_port
from rollcast.rollouts.records import RolloutGroup
from rollcast.tasks.tokens import load_tokenizer
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.teacher import TeacherClient
from rollcast.trainer.control.teacher_vocabulary import check_teacher
from testkit.rollouts.examples import make_answer_group, make_rollout, make_task
from testkit.tiny_model import CHARACTERS, make_tiny_model
from testkit.uncompiled import UNCOMPILED
from tests.trainer.teacher_server import with_tokens_exchanged

NAME = "teacher"
MAX_LENGTH = 96
START_SECONDS = 300.0
pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def teacher_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    make_tiny_model(folder, seed=3, max_length=128)
    return folder


@pytest.fixture(scope="module")
def url(teacher_folder: Path) -> Iterator[str]:
    port = free_port("127.0.0.1")
    options = [
        "--served-model-name",
        NAME,
        "--max-model-len",
        str(MAX_LENGTH + 1),
        "--dtype",
        "float32",
    ]
    # Not `vllm serve`: in the CPU build the command looks for a distribution named vllm, and fails.
    program = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(teacher_folder),
    ]
    command = [*program, "--host", "127.0.0.1", "--port", str(port), "--enforce-eager", *options]
    own = {
        "VLLM_PLUGINS": "",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        UNCOMPILED: "1",
    }
    with (teacher_folder / "server.log").open("w") as log:
        server = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers(port):
            assert server.poll() is None, (teacher_folder / "server.log").read_text()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(60)


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def some_group() -> RolloutGroup:
    rng = np.random.default_rng(2)
    rollouts = []
    for index, length in enumerate((1, 7, MAX_LENGTH - 3)):
        token_ids = rng.integers(3, len(CHARACTERS), length).astype(np.int32)
        rollouts.append(make_rollout(index, length, token_ids=token_ids))
    return make_answer_group(make_task(5), rollouts)


def test_a_real_server_gives_the_log_probs_that_plain_code_computes(
    url: str, teacher_folder: Path
) -> None:
    group = some_group()
    settings = EndpointTeacher(url=url, model=NAME, devices=1)
    client = TeacherClient(settings, Exporter("r"), max_tokens=MAX_LENGTH)
    try:
        client.ask(group)
        while not client.answered_sequences():
            time.sleep(0.05)
        found = client.take(group.sequence)
    finally:
        client.close()
    assert found is not None
    model = transformers.AutoModelForCausalLM.from_pretrained(teacher_folder, dtype=torch.float64)
    num_prompt = len(group.prompt_token_ids)
    for rollout, answer in zip(group.rollouts, found, strict=True):
        ids = torch.tensor([[*group.prompt_token_ids.tolist(), *rollout.token_ids.tolist()]])
        with torch.no_grad():
            rows = torch.log_softmax(model(input_ids=ids).logits[0], 1)
        wanted = rows[num_prompt - 1 : -1].gather(1, ids[0, num_prompt:, None])[:, 0].numpy()
        assert answer is not None
        np.testing.assert_allclose(answer[0], wanted, atol=1e-4)


def test_a_real_server_is_compared_with_the_models_tokenizer(
    url: str, teacher_folder: Path, tmp_path: Path
) -> None:
    def check(model: Model) -> None:
        check_teacher(
            Distillation(teacher=EndpointTeacher(url=url, model=NAME, devices=1)),
            model,
            load_tokenizer(model),
        )

    check(Model(path=str(teacher_folder), max_length=MAX_LENGTH))
    with pytest.raises(UserError, match="has another tokenizer"):
        check(Model(path=str(with_tokens_exchanged(tmp_path / "other")), max_length=MAX_LENGTH))
    with pytest.raises(
        UserError, match=r"takes 97 tokens, and a rollout may have model\.max_length = 97"
    ):
        check(Model(path=str(teacher_folder), max_length=MAX_LENGTH + 1))
