"""A teacher with other tokens than the model is refused in one sentence, from a folder as from an
endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.distillation import Distillation, EndpointTeacher, FolderTeacher
from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.local.ports import free_port
from rollcast.tasks.tokens import load_tokenizer
from rollcast.trainer.control.teacher_vocabulary import check_teacher
from testkit.tiny_model import write_tokenizer
from tests.trainer.teacher_server import Answer, teacher_server, with_tokens_exchanged

MAX_LENGTH = 128


@pytest.fixture
def student(tmp_path: Path) -> Model:
    write_tokenizer(tmp_path / "student")
    return Model(path=str(tmp_path / "student"), max_length=MAX_LENGTH)


def check(student: Model, teacher: FolderTeacher | EndpointTeacher) -> None:
    check_teacher(Distillation(teacher=teacher), student, load_tokenizer(student))


def test_a_folder_with_the_same_tokens_is_taken(student: Model, tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "teacher")
    check(student, FolderTeacher(path=str(tmp_path / "teacher")))
    check_teacher(None, student, load_tokenizer(student))


def test_a_folder_with_other_tokens_is_refused_in_one_sentence(
    student: Model, tmp_path: Path
) -> None:
    teacher = with_tokens_exchanged(tmp_path / "teacher")
    with pytest.raises(
        UserError,
        match=r"teacher\.path = .* has another tokenizer .*: 2 tokens differ, such as 'a'",
    ):
        check(student, FolderTeacher(path=str(teacher)))
    with pytest.raises(
        UserError,
        match=r"^recipe\.distillation\.teacher\.path = .*: no tokenizer can be read there",
    ):
        check(student, FolderTeacher(path=str(tmp_path / "absent")))


def vllm_with(
    tokenizer: Any, max_length: int = MAX_LENGTH + 1
) -> Callable[[str, dict[str, Any]], Answer]:
    def behaviour(path: str, body: dict[str, Any]) -> Answer:
        if path == "/tokenize":
            return 200, json.dumps({"tokens": [1], "max_model_len": max_length}).encode()
        assert path == "/detokenize"
        return 200, json.dumps({"prompt": tokenizer.decode(body["tokens"])}).encode()

    return behaviour


def endpoint(url: str, **changes: Any) -> EndpointTeacher:
    settings: dict[str, Any] = {
        "url": url,
        "model": "teacher",
        "devices": 1,
        "deadline_seconds": 30.0,
    }
    return EndpointTeacher(**settings | changes)


def test_an_endpoint_is_taken_by_its_text_of_every_token(student: Model, tmp_path: Path) -> None:
    with teacher_server(vllm_with(load_tokenizer(student))) as url:
        check(student, endpoint(url))
    other = load_tokenizer(Model(path=str(with_tokens_exchanged(tmp_path / "teacher"))))
    expected = pytest.raises(
        UserError, match=r"url = .*: teacher has another tokenizer than model\.path = "
    )
    with teacher_server(vllm_with(other)) as url, expected:
        check(student, endpoint(url))


def test_an_endpoint_that_takes_too_few_tokens_is_refused(student: Model) -> None:
    behaviour = vllm_with(load_tokenizer(student), MAX_LENGTH)
    expected = pytest.raises(
        UserError, match=f"takes {MAX_LENGTH} tokens, .* start it with --max-model-len 129"
    )
    with teacher_server(behaviour) as url, expected:
        check(student, endpoint(url))


@pytest.mark.parametrize("status", [404, 401])
def test_an_endpoint_that_knows_no_such_model_is_one_sentence(student: Model, status: int) -> None:
    expected = pytest.raises(
        UserError, match=f"answers with status {status}; start the teacher there"
    )
    with teacher_server(lambda *_: (status, b"")) as url, expected as caught:
        check(student, endpoint(url))
    assert "\n" not in str(caught.value)


def test_an_endpoint_that_cannot_be_reached_is_one_sentence(student: Model) -> None:
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}/v1"
    with pytest.raises(
        UserError, match=rf"teacher\.url = '{url}': .*; start the teacher there"
    ) as caught:
        check(student, endpoint(url, deadline_seconds=0.5))
    assert "\n" not in str(caught.value)
