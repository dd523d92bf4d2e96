"""A chat template that never ends: refused at the start in a sentence, and in a run the end of its
process.
"""

from __future__ import annotations

import asyncio
import json
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
    "loops for long chats": "{% if messages | length > 2 %}"
    + 3 * LOOP
    + 3 * END
    + "{% endif %}"
    + CHATML_TEMPLATE,
    (
        "loops over the chat's letters"
    ): "{% set c = messages[0].content * 9999 %}{% for a in c %}{% for b in c %}"
    + 2 * END
    + CHATML_TEMPLATE,
}


def write(folder: Path, template: str) -> Model:
    write_chat_tokenizer(folder, "chatml", template)
    return Model(path=str(folder))


async def test_the_start_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write(tmp_path, ENDLESS["loops over the chat's letters"])
    monkeypatch.setattr(check, "CHECK_SECONDS", 4.0)
    with pytest.raises(UserError, match="did not end within 4 s") as caught:
        await check_chat_format(model, PromptFormat())
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_the_start_names_another_fault(tmp_path: Path) -> None:
    """A right template passes in every run of a system."""
    with pytest.raises(
        UserError, match=r"model.renderer = auto: the chat template of .* ends a turn"
    ):
        await check_chat_format(
            write(tmp_path, "{% for message in messages %}{{ message.content }}{% endfor %}"),
            PromptFormat(),
        )


LONG_OPERATIONS = {
    "a power": "{{ 9 ** (9 ** 6) }}",
    "a power of a product": "{% set n = 10 ** 9999 * 10 ** 9999 %}{{ n ** n }}",
    "a product": (
        "{% set n = namespace(x=10 ** 9999) %}{% for i in range(6) %}{% set n.x = n.x * n.x %}{% "
        "endfor %}"
    ),
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


MILLION = "{% set s = 'a' * 10 ** 6 %}"
LARGE_RESULTS = {
    "a width": "{{ '%1000000000d' % 1 }}",
    "a width given by an argument": "{{ '%*d' % (10 ** 9, 1) }}",
    "a precision": "{{ '%.1000000000f' | format(1) }}",
    "many widths": "{{ ('%9999999d' * 500) % ((1,) * 500) }}",
    "str.format": "{{ '{:1000000000}'.format(1) }}",
    "str.format with a nested width": "{{ '{:{}}'.format(1, 10 ** 9) }}",
    "str.format of one text often": MILLION + "{{ ('{0}' * 5000).format(s) }}",
    "center": "{{ 'x'.center(10 ** 9) }}",
    "ljust, rjust": "{{ 'x'.ljust(10 ** 9) }}{{ 'x'.rjust(10 ** 9) }}",
    "zfill": "{{ '1'.zfill(10 ** 9) }}",
    "expandtabs": "{{ '\\t\\t'.expandtabs(10 ** 9) }}",
    "center as a filter": "{{ 'x' | center(10 ** 9) }}",
    "indent": "{{ 'x' | indent(10 ** 9, true) }}",
    "indented JSON": "{{ [1] | tojson(indent=10 ** 9) }}",
    "replace in replace": MILLION + "{{ s.replace('a', 'b' * 1000).replace('b', 'c' * 1000) }}",
    "replace as a filter": MILLION + "{{ s | replace('a', s) }}",
    "replace as a filter by names": MILLION + "{{ s | replace(old='a', new=s) }}",
    "indent by name": "{{ 'x' | indent(width=10 ** 9, first=true) }}",
    "center by name": "{{ 'x' | center(width=10 ** 9) }}",
    "batch by name": "{{ ['x'] | batch(linecount=10 ** 9, fill_with='y') | list | length }}",
    "round by name": "{{ 1.5 | round(precision=10 ** 9, method='ceil') }}",
    "join by name": MILLION + "{{ (['b'] * 5000) | join(d=s) }}",
    "map of a filter": MILLION + "{{ [s] | map('replace', 'a', s) | list | length }}",
    "join": MILLION + "{{ s.join(['b'] * 5000) }}",
    "join as a filter": MILLION + "{{ (['b'] * 5000) | join(s) }}",
    "join of a lazy list": MILLION + "{{ ([{'t': s}] * 5000) | map(attribute='t') | join }}",
    "translate": MILLION + "{{ s.translate({97: s}) }}",
    "sum of lists": "{{ ([[1] * 10 ** 5] * 50000) | sum(start=[]) | length }}",
    "batch": "{{ ['x'] | batch(10 ** 9, 'y') | list | length }}",
    "slice": "{{ ['x'] | slice(10 ** 9) | list | length }}",
    "round": "{{ 1.5 | round(10 ** 9, 'ceil') }}",
    "lipsum": "{{ lipsum(1, false, 10 ** 8, 10 ** 9) }}",
    "a doubled text": (
        "{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor "
        "%}"
    ),
    "a doubled sum": (
        "{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor "
        "%}"
    ),
    "a doubled list": (
        "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor "
        "%}"
    ),
    "a doubled block": "{% set n = namespace(x='aa') %}{% for i in range(99) %}"
    "{% set x %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = x %}{% endfor %}",
    "lists of one list": "{% set n = namespace(x=[1]) %}"
    "{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "copies in a sorted list": MILLION + "{{ ([s] * 9999) | sort | length }}",
    "many texts": "{% set n = namespace(x=[]) %}"
    "{% for i in range(99999) %}{% set n.x = [n.x, 'ab' * 10 ** 6] %}{% endfor %}",
}
BOUNDED = """
import json, resource, sys, time
from rollcast.chat.template import ChatTemplate
from transformers.utils.chat_template_utils import render_jinja_template
class OfTemplate:
    def __init__(self, template):
        self.template = template
    def apply_chat_template(self, messages, **options):
        return render_jinja_template([messages], chat_template=self.template)[0][0]
templates = json.load(sys.stdin)
ChatTemplate(OfTemplate("x"), {}).text([], [])
now_bytes = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now_bytes + (3 << 30),) * 2)
for what, template in templates.items():
    began = time.process_time()
    try:
        outcome = f"rendered {len(ChatTemplate(OfTemplate(template), {}).text([], []))} characters"
    except Exception as error:
        outcome = str(error)
    print(json.dumps([what, outcome, time.process_time() - began]), flush=True)
"""


def test_a_result_that_is_too_large_is_refused_before_it_is_made() -> None:
    run = subprocess.run(
        [sys.executable, "-c", BOUNDED],
        input=json.dumps(LARGE_RESULTS),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    outcomes = [json.loads(line) for line in run.stdout.splitlines()]
    assert [outcome for outcome in outcomes if "chat template" not in outcome[1]] == []
    assert [what for what, _, _ in outcomes] == list(LARGE_RESULTS), run.stderr[-2_000:]


ORDINARY = {
    (
        "{{ '%s has %d' % ('a', 3) }} {{ '{} {:>3}'.format('a', 1) }} {{ '%.1f' | format(2.25) }}"
    ): "a has 3 a   1 2.2",
    "{{ 'x'.center(5) }}|{{ 'x' | center(5) }}|{{ '1'.zfill(3) }}": "  x  |  x  |001",
    (
        "{{ 'a,b'.split(',') | join('; ') }} {{ '-'.join(['a', 'b']) }} {{ 'aa'.replace('a', 'bc') "
        "}}"
    ): "a; b a-b bcbc",
    (
        "{{ ['b', 'a'] | map('upper') | sort | join }} {{ {'a': [1]} | tojson(indent=1) }}"
    ): 'AB {\n "a": [\n  1\n ]\n}',
    (
        "{% set n = namespace(x=[]) %}{% for i in range(3) %}{% set n.x = n.x + [i] %}{% endfor "
        "%}{{ n.x ~ 'a' }}"
    ): ("[0, 1, 2]a"),
    (
        "{% macro m(x) %}<{{ x | trim }}>{% endmacro %}{{ m(' a ') }}{{ 1.25 | round(1) }}{{ "
        "undefined_name }}"
    ): "<a>1.2",
    (
        "{% filter upper %}a{{ 'b' | indent(2, true) }}{% endfilter %}{{ 'a\\nb' | indent }}"
    ): "A  Ba\n    b",
    "{{ ('a' * 5000000) | length }}": "5000000",
}


@pytest.mark.parametrize("template", ORDINARY)
def test_ordinary_operations_have_their_results(template: str) -> None:
    tokenizer: Any = OfTemplate(template)
    assert ChatTemplate(tokenizer, {}).text([], []) == ORDINARY[template]


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
"""  # noqa: E501


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
