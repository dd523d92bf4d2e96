"""A chat template that never ends: refused at the start in a sentence, and in a run the end of its process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rollcast.chat import check
from rollcast.chat.base import ChatRefusedError
from rollcast.chat.check import check_chat_format
from rollcast.chat.template import ChatTemplate
from rollcast.config.errors import EXIT_USER_ERROR, UserError
from rollcast.config.model import Model
from rollcast.config.tasks import PromptFormat
from testkit.chat_tokenizers import CHATML_TEMPLATE, write_chat_tokenizer

LOOP = "{% for i in range(99999) %}"
END = "{% endfor %}"
ENDLESS = {
    "nested loops": 3 * LOOP + 3 * END + CHATML_TEMPLATE,
    "loops for long chats": "{% if messages | length > 2 %}" + 3 * LOOP + 3 * END + "{% endif %}" + CHATML_TEMPLATE,
    "loops over the chat's letters": "{% set c = messages[0].content * 9999 %}{% for a in c %}{% for b in c %}"
    + 2 * END
    + CHATML_TEMPLATE,
}


def write(folder: Path, template: str) -> Model:
    write_chat_tokenizer(folder, "chatml", template)
    return Model(path=str(folder))


@pytest.mark.parametrize("what", ["nested loops", "loops over the chat's letters"])
async def test_the_start_refuses_it(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write(tmp_path, ENDLESS[what])
    monkeypatch.setattr(check, "CHECK_SECONDS", 4.0)
    with pytest.raises(UserError, match="did not end within 4 s") as caught:
        await check_chat_format(model, PromptFormat())
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_the_start_takes_a_right_one_and_names_the_fault_of_another(tmp_path: Path) -> None:
    await check_chat_format(write(tmp_path, CHATML_TEMPLATE), PromptFormat())
    with pytest.raises(UserError, match=r"model.renderer = auto: the chat template of .* ends a turn"):
        await check_chat_format(
            write(tmp_path, "{% for message in messages %}{{ message.content }}{% endfor %}"), PromptFormat()
        )


LONG_OPERATIONS = {
    "a power": "{{ 9 ** (9 ** 6) }}",
    "a power of a product": "{% set n = 10 ** 9999 * 10 ** 9999 %}{{ n ** n }}",
    "a product": "{% set n = namespace(x=10 ** 9999) %}{% for i in range(6) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "a repeated text": "{{ 'a' * 10 ** 9 }}",
    "a list repeated by a number before it": "{{ (10 ** 9 * [1]) | length }}",
    "a long range": "{{ range(10 ** 9) | list }}",
}
USUAL = "{{ 2 ** 10 }} {{ 2.5 ** 3 }} {{ 'ab' * 3 }} {{ 3 * [1] }} {{ 2 * 3.5 }} {{ -2 * 3 }}"


class OfTemplate:
    """The rendering of transformers, without a tokenizer."""

    name_or_path = "a model"
    eos_token_id = 0

    def __init__(self, template: str) -> None:
        self.template = template

    def apply_chat_template(self, messages: Any, **options: Any) -> str:
        from transformers.utils.chat_template_utils import render_jinja_template

        return str(render_jinja_template([messages], chat_template=self.template)[0][0])


@pytest.mark.parametrize("what", LONG_OPERATIONS)
def test_an_operation_that_holds_the_lock_is_refused(what: str) -> None:
    tokenizer: Any = OfTemplate(LONG_OPERATIONS[what])
    began = time.process_time()
    with pytest.raises(ChatRefusedError, match=r"chat template|Range too big"):
        ChatTemplate(tokenizer, {}).text([{"role": "user", "content": "x"}], [])
    assert time.process_time() - began < 60.0, "larger ones of the kind take hours"


def test_usual_operations_are_as_before() -> None:
    tokenizer: Any = OfTemplate(USUAL)
    assert ChatTemplate(tokenizer, {}).text([], []) == "1024 15.625 ababab [1, 1, 1] 7.0 -6"


RUN = """
import sys
from transformers import AutoTokenizer
from rollcast.chat.template import ChatTemplate
from rollcast.tasks import template_watch
from rollcast.tasks.tokens import tokenize
from rollcast.tasks.chats import Message
from rollcast.config.tasks import PromptFormat
template_watch.RENDER_SECONDS = 2.0
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
if sys.argv[2] == "episode":
    template = ChatTemplate(tokenizer, {})
    print(len(template.prompt([{"role": "user", "content": "x"}], [])), flush=True)
    template.prompt([{"role": "user", "content": "x"}] * 3, [])
else:
    tokenize(tokenizer, [Message("user", "x")], PromptFormat())
    print("ended", flush=True)
    tokenize(tokenizer, [Message("user", "x"), Message("assistant", "y"), Message("user", "z")], PromptFormat())
"""


@pytest.mark.parametrize("where", ["episode", "prompt"])
async def test_in_a_run_its_process_ends_and_names_it(where: str, tmp_path: Path) -> None:
    write(tmp_path, ENDLESS["loops for long chats"])
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", RUN, str(tmp_path), where],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == EXIT_USER_ERROR, run.stderr[-2_000:]
    assert run.stdout, "an ordinary chat is written"
    sentence = run.stderr.splitlines()[-1]
    assert sentence.startswith(f"error: the chat template of {tmp_path} did not end within 2 s")
