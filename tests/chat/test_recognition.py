"""Which renderer serves a model: by name, by its chat template, or the bridge; and what is refused
in one sentence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import transformers

from rollcast.chat.base import ChatRefusedError
from rollcast.chat.bridge import TemplateBridge
from rollcast.chat.make import make_renderer
from rollcast.chat.typed import PackageRenderer, package_names
from rollcast.config.errors import UserError
from rollcast.config.model import Model, Renderer
from rollcast.config.tasks import PromptFormat
from testkit.chat_tokenizers import (
    CHATML_TEMPLATE,
    END_OF_TURN,
    LLAMA_3_TEMPLATE,
    QWEN3_TEMPLATE,
    TEMPLATES,
    Kind,
    make_chat_tokenizer,
    make_tiny_chat_model,
    write_chat_tokenizer,
)

QUESTION = {"role": "user", "content": "question"}
MISTRAL_LIKE = (
    "{{- '<s>' }}{%- for message in messages %}"
    "{%- if message.role == 'user' %}"
    "{%- if loop.first and tools %}{{- '[TOOLS] ' + (tools | tojson) + '[/TOOLS]' }}{%- endif %}"
    "{{- '[INST] ' + message.content + '[/INST]' }}"
    "{%- elif message.role == 'tool' %}"
    "{%- if message.tool_call_id | length != 9 %}{{ raise_exception('ids have nine letters') }}{%- "
    "endif %}"
    """{{- '[RESULT] {"content": ' + (message.content | tojson) }}"""
    """{{- ', "id": "' + message.tool_call_id + '"}[/RESULT]' }}"""
    "{%- elif message.tool_calls %}{{- '[TOOL_CALLS] [' }}{%- for call in message.tool_calls %}"
    """{{- '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}"""  # noqa: E501
    """{{- ', "id": "' + call.id + '"}' }}{%- if not loop.last %}{{- ', ' }}{%- endif %}{%- endfor %}{{- ']</s>' }}"""  # noqa: E501
    "{%- else %}{{- ' ' + message.content + '</s>' }}{%- endif %}{%- endfor %}"
)
"""A list of calls in one mark, whose contents are left out, and ids of nine letters."""


def made(kind: Kind, template: str | None = None, **settings: Any) -> Any:
    return make_renderer(Model(path="/model"), make_chat_tokenizer(kind, template), **settings)


def refusal(kind: Kind, template: str, **settings: Any) -> str:
    with pytest.raises(UserError) as caught:
        made(kind, template, **settings)
    sentence = str(caught.value)
    assert "model.renderer = auto: the chat template of /model " in sentence
    assert sentence.count("\n") == 0
    return sentence


@pytest.mark.parametrize(("kind", "name"), [("qwen3", "qwen3"), ("llama_3", "llama-3")])
def test_a_folder_is_recognised_by_its_chat_template(kind: Kind, name: str, tmp_path: Path) -> None:
    num_tokens = write_chat_tokenizer(tmp_path, kind)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == num_tokens
    renderer = make_renderer(Model(path=str(tmp_path)), tokenizer)
    named = make_renderer(
        Model.model_validate({"path": str(tmp_path), "renderer": name}), tokenizer
    )
    assert isinstance(renderer, PackageRenderer)
    assert renderer.prompt([QUESTION], []) == named.prompt([QUESTION], [])
    assert renderer._renderer.config.name == name


def test_a_template_with_todays_date_is_recognised() -> None:
    dated = LLAMA_3_TEMPLATE.replace(
        "Today Date: 26 Jul 2024\\n\\n' +",
        (
            "Today Date: ' + (date_string if date_string is defined else strftime_now('%d %b %Y')) "
            "+ '\\n\\n' +"
        ),
    )
    assert dated != LLAMA_3_TEMPLATE
    assert isinstance(made("llama_3", dated), PackageRenderer)


@pytest.mark.parametrize(
    ("kind", "template"),
    [
        ("chatml", CHATML_TEMPLATE),
        ("qwen3", QWEN3_TEMPLATE.replace("# Tools", "# Functions")),
        ("llama_3", LLAMA_3_TEMPLATE.replace("December 2023", "May 2024")),
        ("inst", MISTRAL_LIKE),
    ],
)
def test_another_template_gets_the_bridge_and_its_calls_are_read(kind: Kind, template: str) -> None:
    renderer = made(kind, template)
    assert isinstance(renderer, TemplateBridge)
    end = make_chat_tokenizer(kind).convert_tokens_to_ids(END_OF_TURN[kind])
    assert end in renderer.stop_token_ids


@pytest.mark.parametrize("kind", list(TEMPLATES))
def test_sampling_stops_where_a_turn_ends(kind: Kind) -> None:
    tokenizer = make_chat_tokenizer(kind)
    end = tokenizer.convert_tokens_to_ids(END_OF_TURN[kind])
    assert end in made(kind, needs_tools=kind != "inst").stop_token_ids


def test_thinking_is_kept_between_calls_and_is_a_split_at_the_next_question() -> None:
    result = {"role": "tool", "name": "add", "tool_call_id": "call00001", "content": "3"}
    tokenizer = make_chat_tokenizer("qwen3")
    thinking = tokenizer.encode("<think>\nhm\n</think>\n\nyes<|im_end|>", add_special_tokens=False)
    plain = tokenizer.encode("yes<|im_end|>", add_special_tokens=False)
    for template in (QWEN3_TEMPLATE, QWEN3_TEMPLATE.replace("# Tools", "# Functions")):
        renderer = made("qwen3", template)
        prompt = renderer.prompt([QUESTION], [])
        assert renderer.next_turn(prompt, thinking, [result], []) is not None
        assert renderer.next_turn(prompt, thinking, [QUESTION], []) is None
        assert renderer.next_turn(prompt, plain, [QUESTION], []) is not None
        earlier = [*prompt, *thinking, *(renderer.next_turn(prompt, thinking, [result], []) or [])]
        assert renderer.next_turn(earlier, plain, [QUESTION], []) is None


def test_a_prompt_that_the_format_cannot_write_says_why() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    answer = {"role": "assistant", "content": "", "tool_calls": [call, call]}
    for template in (LLAMA_3_TEMPLATE, LLAMA_3_TEMPLATE.replace("December 2023", "May 2024")):
        with pytest.raises(ChatRefusedError, match="the chat format refuses the messages"):
            made("llama_3", template).prompt([QUESTION, answer], [])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            (
                "'<|im_start|>' + message.role }}",
                "'<|im_start|>' + (messages | length | string) + message.role }}",
            ),
            "rewrites earlier turns when later ones follow",
        ),
        (
            (
                "{%- for message in messages %}",
                "{%- for message in messages if message.role != 'tool' %}",
            ),
            "leaves out or changes tool results",
        ),
        (
            ("{%- for message in messages %}", "{%- for message in messages[-3:] %}"),
            "rewrites earlier turns when later ones follow",
        ),
        (
            ("{{- ' ' + message.name }}", "{{- raise_exception('no tools here') }}"),
            (
                "cannot write a probe conversation: the chat format refuses the messages (no tools "
                "here)"
            ),
        ),
        (("{%- if tools %}", "{%- if false %}"), "does not show the model its tools"),
        (
            ("{%- for call in message.tool_calls or [] %}", "{%- for call in [] %}"),
            "writes no tool calls",
        ),
        (("{{- message.content or '' }}", ""), "leaves out the turns of the assistant"),
    ],
)
def test_a_template_whose_turns_do_not_extend_each_other_is_refused(
    change: tuple[str, str], reason: str
) -> None:
    template = CHATML_TEMPLATE.replace(*change)
    assert template != CHATML_TEMPLATE
    assert reason in refusal("chatml", template)


CONTENT = "{{- message.content or '' }}"
QWEN3_CONTENT = "{%- set content = message.content if message.content is string else '' %}"
SHORTENED = {
    # What a template shows of a message -> whether it is refused
    "{{- message.content or '' }}": False,
    "{{- (message.content or '') | trim }}": False,
    "{{- message.content if loop.last else (message.content or '')[:40] }}": True,
    "{{- message.content if loop.last else (message.content or '')[:200] }}": True,
    "{{- message.content if loop.last else (message.content or '')[:5000] }}": True,
    "{{- (message.content or '')[:5000] }}": True,  # sampled turns are longer than their history
    (
        "{{- message.content if loop.last or message.role != 'tool' else message.content[:1000] }}"
    ): True,
    (
        "{{- message.content if loop.last or message.role != 'tool' else message.content | "
        "truncate(2000) }}"
    ): True,
    (
        "{{- message.content if loop.last or message.role != 'tool' else "
        "message.content.split('\\n')[0] }}"
    ): True,
    (
        "{{- message.content if loop.last or message.role != 'user' else message.content[:1000] }}"
    ): True,
    (
        "{{- (message.content or '') if loop.last else (message.content or '') | replace('\\n\\n', "
        "'\\n') }}"
    ): True,
    (
        "{{- (message.content or '')[:1000] if message.role == 'assistant' else message.content }}"
    ): True,
    (
        "{{- (message.content or '') if loop.revindex0 < 12 or message.role != 'tool' else 'left "
        "out' }}"
    ): True,
    # the same once answered
    "{{- message.content if message.role != 'tool' else message.content[:1000] }}": False,
}


@pytest.mark.parametrize(("shown", "is_refused"), SHORTENED.items())
@pytest.mark.parametrize("kind", ["bridge", "known"])
def test_a_template_that_shortens_answered_turns_is_refused(
    kind: str, shown: str, is_refused: bool
) -> None:
    """Also one that writes short chats as a renderer of the package does: it is not recognised as
    that one's.
    """
    template = CHATML_TEMPLATE.replace(CONTENT, shown)
    if kind == "known":
        inner = shown.replace("message.content", "content").removeprefix("{{-").removesuffix("}}")
        template = QWEN3_TEMPLATE.replace(
            QWEN3_CONTENT, f"{QWEN3_CONTENT}{{%- set content = {inner} %}}"
        )
        assert template != QWEN3_TEMPLATE
    if not is_refused:
        made("chatml" if kind == "bridge" else "qwen3", template)
        return
    sentence = refusal("chatml" if kind == "bridge" else "qwen3", template)
    assert "rewrites earlier turns" in sentence or "leaves out or changes" in sentence


def test_a_template_that_shows_the_tools_at_the_last_question_splits_there() -> None:
    text = MISTRAL_LIKE.replace(
        "{{- '<s>' }}",
        "{{- '<s>' }}{%- set asked = messages | selectattr('role', 'equalto', 'user') | list %}",
    )
    renderer = made("inst", text.replace("loop.first and tools", "message == asked[-1] and tools"))
    tokenizer = make_chat_tokenizer("inst")
    tool = {
        "type": "function",
        "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}},
    }
    result = {"role": "tool", "name": "add", "tool_call_id": "call00001", "content": "3"}
    prompt = renderer.prompt([QUESTION], [tool])
    written = tokenizer.encode(" yes</s>", add_special_tokens=False)
    assert renderer.next_turn(prompt, written, [result], [tool]) is not None
    assert (
        renderer.next_turn(prompt, written, [{"role": "user", "content": "another"}], [tool])
        is None
    )
    assert (
        renderer.next_turn(prompt, written, [{"role": "user", "content": "another"}], [])
        is not None
    )


def test_a_template_without_tokens_between_turns_is_refused() -> None:
    text = CHATML_TEMPLATE.replace("<|im_start|>", "### ").replace("<|im_end|>", "")
    assert "ends a turn of the assistant with no token of its own" in refusal("chatml", text)


@pytest.mark.parametrize("thinks", [True, False])
def test_the_thinking_of_a_family_is_that_of_the_folder(thinks: bool) -> None:
    """Templates of one family differ in their default: the renderer begins turns
    as this one does.
    """
    template = QWEN3_TEMPLATE
    if not thinks:
        template = template.replace(
            "enable_thinking is defined and enable_thinking is false",
            "not (enable_thinking is defined and enable_thinking)",
        )
        assert template != QWEN3_TEMPLATE
    tokenizer = make_chat_tokenizer("qwen3", template)
    renderer = make_renderer(Model(path="/model"), tokenizer)
    assert isinstance(renderer, PackageRenderer)
    own = tokenizer.apply_chat_template([QUESTION], add_generation_prompt=True, tokenize=False)
    assert tokenizer.decode(renderer.prompt([QUESTION], [])) == own


def test_a_template_without_tools_serves_chats_without_tools() -> None:
    assert "writes no tool calls" in refusal("inst", TEMPLATES["inst"])
    assert isinstance(made("inst", needs_tools=False), TemplateBridge)


@pytest.mark.parametrize(
    ("prompt_format", "said"),
    [
        (PromptFormat(layout="bare"), "tasks.prompt_format.layout = bare: "),
        (PromptFormat(layout="think"), "tasks.prompt_format.layout = think: "),
        (PromptFormat(open_thinking=True), "tasks.prompt_format.open_thinking = true: "),
    ],
)
def test_prompts_that_are_no_chats_of_the_template_are_refused(
    prompt_format: PromptFormat, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        made("qwen3", prompt_format=prompt_format)


def test_the_names_that_a_run_file_may_give_are_those_of_the_package() -> None:
    assert set(get_args(Renderer)) == {"auto", *package_names()}


def test_a_name_that_does_not_fit_and_a_model_without_a_template_are_refused() -> None:
    tokenizer = make_chat_tokenizer("llama_3")
    with pytest.raises(UserError, match=r"model\.renderer = qwen3: does not serve this model"):
        make_renderer(Model(path="/model", renderer="qwen3"), tokenizer)
    tokenizer.chat_template = None
    with pytest.raises(UserError, match="the tokenizer of /model has no chat template"):
        make_renderer(Model(path="/model"), tokenizer)


def test_thinking_that_is_switched_off_is_so_in_every_turn() -> None:
    off = PromptFormat(enable_thinking=False)
    tokenizer = make_chat_tokenizer("qwen3")
    for template in (QWEN3_TEMPLATE, QWEN3_TEMPLATE.replace("# Tools", "# Functions")):
        renderer = made("qwen3", template, prompt_format=off)
        prompt = renderer.prompt([QUESTION], [])
        written = tokenizer.encode("yes<|im_end|>", add_special_tokens=False)
        given = renderer.next_turn(prompt, written, [QUESTION], [])
        for token_ids in (prompt, given):
            assert tokenizer.decode(token_ids).endswith(
                "<|im_start|>assistant\n<think>\n\n</think>\n\n"
            )


def test_a_prompt_that_opens_the_thinking_is_bridged() -> None:
    """As in models that always think: the history has the block of each answer only if it had
    thoughts.
    """
    template = QWEN3_TEMPLATE.replace(
        "{{- '<|im_start|>assistant\\n' }}\n    {%- if enable",
        "{{- '<|im_start|>assistant\\n<think>\\n' }}\n    {%- if enable",
    )
    assert template != QWEN3_TEMPLATE
    renderer = made("qwen3", template)
    tokenizer = make_chat_tokenizer("qwen3")
    prompt = renderer.prompt([QUESTION], [])
    written = tokenizer.encode("hm\n</think>\n\nyes<|im_end|>", add_special_tokens=False)
    turn = renderer.parse(prompt, written, [])
    assert (turn.reasoning, turn.content) == ("hm", "yes")
    assert renderer.next_turn(prompt, written, [QUESTION], []) is None
    assert (
        renderer.next_turn(prompt, written, [{"role": "tool", "name": "add", "content": "3"}], [])
        is not None
    )
    cut = renderer.next_turn(
        prompt, written[:2], [{"role": "tool", "name": "add", "content": "3"}], []
    )
    assert tokenizer.decode(cut).startswith("</think><|im_end|>\n")


def test_a_tiny_model_has_the_tokens_of_its_tokenizer(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    make_tiny_chat_model(tmp_path, "llama_3")
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model.config.vocab_size == len(transformers.AutoTokenizer.from_pretrained(tmp_path))
