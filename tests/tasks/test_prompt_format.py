"""The text around a prompt, and what verifiers make of thinking that the prompt opened."""

from __future__ import annotations

import string
from typing import Any, Literal

import numpy as np
import pytest
import transformers
from tokenizers import Tokenizer, decoders, models
from tokenizers.processors import TemplateProcessing

from rollcast.config.errors import UserError
from rollcast.config.recipe import Interruption, NoLengthControl, Recipe
from rollcast.config.run import parse_run_config
from rollcast.config.tasks import PromptFormat, Tasks
from rollcast.generator.grading import GradingThreads
from rollcast.rollouts.records import GradingStatus, LengthBudget, PromptTask, Purpose, Sampling
from rollcast.tasks.chats import make_chat
from rollcast.tasks.thinking import check_thinking
from rollcast.tasks.tokens import render, tokenize
from rollcast.telemetry.exporter import Exporter

CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif "
    "%}{% endif %}"
)
"""As Qwen3's template does it: thinking is switched off by an empty block."""
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not "
    "supported') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}{% endfor %}"
)


def tokenizer(template: str | None = None) -> transformers.PreTrainedTokenizerFast:
    characters = [*string.printable]
    fast = Tokenizer(
        models.BPE(vocab={c: i for i, c in enumerate(["<eos>", *characters])}, merges=[])
    )
    fast.decoder = decoders.Fuse()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<eos>")
    made.chat_template = template
    return made


def rendered(template: str | None, **settings: Any) -> str:
    return render(tokenizer(template), make_chat("1+1?"), PromptFormat(**settings))[0]


def test_the_chat_template_is_used_where_there_is_one() -> None:
    assert rendered(CHATML) == "<|user|>1+1?<|end|><|assistant|>\n"
    assert (
        rendered(CHATML, system="Think.")
        == "<|system|>Think.<|end|><|user|>1+1?<|end|><|assistant|>\n"
    )
    assert rendered(CHATML, layout="bare") == "1+1?"
    assert rendered(None) == "1+1?"


def test_the_layout_think_asks_for_a_think_block_and_the_answer_behind_it() -> None:
    text = rendered(CHATML, layout="think")
    system, _, rest = text.partition("\n\nUser: ")
    assert "<think>" in system
    assert "</think>" in system
    assert rest == "1+1?\n\nAssistant:"
    assert (
        rendered(None, layout="think", system="Be brief.")
        == "Be brief.\n\nUser: 1+1?\n\nAssistant:"
    )


def test_thinking_is_opened_once_or_switched_off() -> None:
    assert rendered(CHATML, open_thinking=True).endswith("<|assistant|>\n<think>\n")
    opening = CHATML.replace("<|assistant|>\n", "<|assistant|>\n<think>\n")
    assert rendered(opening, open_thinking=True).count("<think>") == 1
    assert rendered(CHATML, enable_thinking=False).endswith("<think>\n\n</think>\n\n")
    assert rendered(None, open_thinking=True) == "1+1? <think>\n"


def test_token_ids_are_those_of_the_rendered_text_without_further_special_tokens() -> None:
    made = tokenizer(CHATML)
    ids = tokenize(made, make_chat("1+1?"), PromptFormat(open_thinking=True))
    assert made.decode(ids) == "<|user|>1+1?<|end|><|assistant|>\n<think>\n"


@pytest.mark.parametrize("layout", ["bare", "think", "auto"])
@pytest.mark.parametrize(
    ("single", "before"),
    [
        ("<s> $A </s>", "<s>"),
        ("$A </s>", ""),
        ("<s> $A", "<s>"),
        ("<s> <s> $A </s> </s>", "<s><s>"),
    ],
)
def test_a_prompt_does_not_end_in_the_end_of_text_that_a_tokenizer_adds(
    layout: Literal["bare", "think", "auto"], single: str, before: str
) -> None:
    made = tokenizer()
    made.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})
    special = [(name, made.convert_tokens_to_ids(name)) for name in ("<s>", "</s>")]
    made.backend_tokenizer.post_processor = TemplateProcessing(
        single=single, special_tokens=special
    )
    if single.endswith("</s>"):
        assert made.decode(made("1+1?")["input_ids"]).endswith("</s>")
    ids = tokenize(made, make_chat("1+1?"), PromptFormat(layout=layout))
    text, _ = render(made, make_chat("1+1?"), PromptFormat(layout=layout))
    assert made.decode(ids) == before + text


def test_a_template_that_refuses_is_one_sentence() -> None:
    with pytest.raises(
        UserError, match=r"tasks\.prompt_format: .*System role not supported"
    ) as caught:
        rendered(NO_SYSTEM, system="Think.")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"layout": "bare", "system": "x"},
            "tasks.prompt_format.layout = 'bare' is wrong: takes neither",
        ),
        (
            {"open_thinking": True, "enable_thinking": False},
            "tasks.prompt_format.open_thinking = true is wrong: contradicts",
        ),
    ],
)
def test_contradictions_are_found_in_the_run_file(settings: dict[str, Any], complaint: str) -> None:
    data = {"run": "r", "model": {"path": "m"}, "tasks": {"prompt_format": settings}}
    with pytest.raises(UserError, match=complaint):
        parse_run_config(data, source="test")


def test_interruption_ends_the_thinking_that_the_prompt_asks_for() -> None:
    thinking, answering = rendered(None, layout="think"), rendered(CHATML, enable_thinking=False)
    check_thinking(thinking, Interruption())
    check_thinking(
        rendered(CHATML), Interruption(phrase="stop", end_of_thinking="|")
    )  # asks for no thinking
    check_thinking(answering, NoLengthControl())
    with pytest.raises(UserError, match="no thinking to interrupt"):
        check_thinking(answering, Interruption())
    with pytest.raises(UserError, match=r"end_of_thinking = '\|'"):
        check_thinking(thinking, Interruption(end_of_thinking="|"))
    with pytest.raises(UserError, match=r"phrase = 'Time is up\.'"):
        check_thinking(thinking, Interruption(phrase="Time is up."))


@pytest.mark.parametrize(
    ("opened", "completion", "status"),
    [
        (False, "42", GradingStatus.OK),
        (True, "42", GradingStatus.WRONG),
        (True, "is it 41?</think>42", GradingStatus.OK),
        (False, "<think>is it 41?</think>42", GradingStatus.OK),
        (False, "<think>42", GradingStatus.WRONG),
    ],
)
async def test_thinking_that_the_prompt_opened_and_that_never_ended_holds_no_answer(
    opened: bool, completion: str, status: GradingStatus
) -> None:
    made = tokenizer(CHATML)
    task = PromptTask(
        sequence=1,
        incarnation=1,
        purpose=Purpose.TRAIN,
        dataset="d",
        prompt_id="p",
        prompt_token_ids=np.array(
            tokenize(made, make_chat("6*7?"), PromptFormat(open_thinking=opened)), np.int32
        ),
        num_rollouts=1,
        sampling=Sampling(),
        length=LengthBudget(64),
        verifier="exact",
        reference='"42"',
    )
    grader = GradingThreads(lambda ids: str(made.decode(ids)), Tasks(), Exporter("r"))
    try:
        graded = await grader.grade(task, made(completion, add_special_tokens=False)["input_ids"])
    finally:
        await grader.close()
    assert graded.status is status


def test_the_papers_budgets_are_the_defaults() -> None:
    recipe = Recipe()
    assert isinstance(recipe.length_control, Interruption)
    assert recipe.max_prompt_tokens == recipe.length_control.answer_tokens == 2_048
    assert recipe.max_completion_tokens == 12_288 + 2_048
