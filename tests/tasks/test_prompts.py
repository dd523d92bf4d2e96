from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tokenizers import Tokenizer, decoders, models

from rollcast.config.datasets import ArithmeticDataset
from rollcast.config.errors import UserError
from rollcast.config.tasks import Evaluation, PromptFormat, Tasks
from rollcast.rollouts.codec import decode_task, encode_task
from rollcast.tasks.contamination import normal_form
from rollcast.tasks.grading import grade
from rollcast.tasks.prompt import Prompt, normalise
from rollcast.tasks.prompts import load
from rollcast.tasks.tokens import render, tokenize_prompts
from testkit.rollouts.examples import make_task
from tests.tasks.data_sets import jsonl_tasks, write_rows


def arithmetic_tasks(size: int = 300, held_out: int = 60, max_digits: int = 4) -> Tasks:
    return Tasks(
        dataset=ArithmeticDataset(size=size, max_digits=max_digits),
        evaluation=Evaluation(num_prompts=held_out),
    )


def test_arithmetic_prompts_are_distinct_sums_of_the_asked_number() -> None:
    split = load(arithmetic_tasks())
    assert (len(split.train), len(split.held_out)) == (300, 60)
    assert len({prompt.text for prompt in split.train + split.held_out}) == 360
    for prompt in split.train[:50]:
        a, b = prompt.text.removesuffix("=").split("+")
        assert grade(prompt.verifier, f"|{int(a) + int(b)}", prompt.reference).status == "ok"


def test_the_split_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    plain = arithmetic_tasks()
    first, again, other = (
        load(
            plain.model_copy(
                update={"evaluation": plain.evaluation.model_copy(update={"seed": seed})}
            )
        )
        for seed in (3, 3, 4)
    )
    assert first == again
    assert first.held_out != other.held_out


def test_too_many_prompts_of_too_few_digits_is_a_users_mistake() -> None:
    with pytest.raises(UserError, match=r"size = 300: only 100 different"):
        load(arithmetic_tasks(max_digits=1))


words = st.text(alphabet="aAbB ①1\t", min_size=1, max_size=4).filter(
    lambda text: text.strip() != ""
)


@settings(max_examples=25)
@given(texts=st.lists(words, min_size=2, max_size=40), seed=st.integers(0, 5))
def test_no_text_stands_on_both_sides_and_nothing_is_lost(
    texts: list[str], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    distinct = {normalise(text) for text in texts}
    path = write_rows(
        tmp_path_factory.mktemp("rows") / "rows.jsonl",
        [{"prompt": text, "answer": "x"} for text in texts],
    )
    plain = jsonl_tasks(path)
    tasks = plain.model_copy(
        update={"evaluation": plain.evaluation.model_copy(update={"seed": seed})}
    )
    if len(distinct) < 2:
        with pytest.raises(UserError, match="num_prompts"):
            load(tasks)
        return
    if len({normal_form(text) for text in texts}) < 2:
        with pytest.raises(
            UserError, match="each training prompt asks what a held-out prompt asks"
        ):
            load(tasks)
        return
    split = load(tasks)
    train, held_out = (
        {normal_form(prompt.text) for prompt in side} for side in (split.train, split.held_out)
    )
    assert train.isdisjoint(held_out)
    kept = {normalise(prompt.text) for prompt in [*split.train, *split.held_out]}
    assert {normal_form(text) for text in distinct - kept} <= held_out
    assert len(split.held_out) == 1
    left_out = split.skipped.get("duplicate", 0) + split.skipped.get("contaminated", 0)
    assert len(split.train) + 1 + left_out == len(texts)


def test_reordered_and_added_rows_leave_held_out_prompts_out(tmp_path: Path) -> None:
    rows: list[object] = [{"prompt": f"p{i}", "answer": i} for i in range(50)]
    before = load(jsonl_tasks(write_rows(tmp_path / "a.jsonl", rows), held_out=10))
    after = load(jsonl_tasks(write_rows(tmp_path / "b.jsonl", rows[::-1]), held_out=10))
    assert {p.id for p in before.held_out} == {p.id for p in after.held_out}


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"prompt": "x"}, r"line 3: field 'answer' is missing or empty \(the row has 'prompt'\)"),
        ({"question": "x", "answer": "y"}, r"line 3: field 'prompt'"),
        ({"prompt": "", "answer": "y"}, r"line 3: field 'prompt'"),
        (
            {"prompt": "\ud800", "answer": "y"},
            r"line 3: field 'prompt' holds half of a surrogate pair",
        ),
        (
            {
                "prompt": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}],
                "answer": "y",
            },
            (
                r"line 3: field 'prompt' holds a chat of 2 messages that ends with one by the "
                r"assistant"
            ),
        ),
        ({"prompt": [], "answer": "y"}, r"line 3: field 'prompt' holds a chat of 0 messages"),
        (
            {"prompt": ["x"], "answer": "y"},
            r"line 3: field 'prompt', message 1 is by None, needs a mapping with role",
        ),
        (
            {"prompt": [{"role": "tool", "content": "x"}], "answer": "y"},
            r"message 1 is by 'tool', needs",
        ),
        (
            {"prompt": [{"role": "user"}], "answer": "y"},
            r"line 3: field 'prompt', message 1 has no text as its content",
        ),
        (
            {"prompt": [{"role": "user", "content": [{"type": "image_url"}]}], "answer": "y"},
            r"message 1 holds a part of type 'image_url', and only text is read",
        ),
        ("{broken", r"line 3: not a JSON object"),
        ("[1]", r"line 3: holds a list"),
        ("[" * 100_000, r"line 3: not a JSON object"),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_field(
    tmp_path: Path, row: object, complaint: str
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"prompt": "a", "answer": "1"}, "", row])
    with pytest.raises(UserError, match=complaint) as caught:
        load(jsonl_tasks(path))
    assert str(path) in str(caught.value)


def test_an_unreadable_file_and_a_bad_template_are_named(tmp_path: Path) -> None:
    path = write_rows(
        tmp_path / "rows.jsonl", [{"prompt": "a", "answer": "1"}, {"prompt": "b", "answer": "2"}]
    )
    with pytest.raises(UserError, match=r"tasks\.dataset\.path .*No such file"):
        load(jsonl_tasks(tmp_path / "absent.jsonl"))
    with pytest.raises(UserError, match=r"tasks\.dataset\.template"):
        load(jsonl_tasks(path, template="solve it"))


def test_rows_are_read_where_their_verifier_is_not_installed(tmp_path: Path) -> None:
    """The trainer's image holds no verifier of others: gradings are made elsewhere."""
    path = write_rows(
        tmp_path / "rows.jsonl", [{"prompt": "a", "answer": "1"}, {"prompt": "b", "answer": "2"}]
    )
    (prompt,) = load(jsonl_tasks(path, verifier="of-another-image")).train
    assert prompt.verifier == "of-another-image"


def test_references_of_some_megabytes_are_kept_and_longer_ones_told(tmp_path: Path) -> None:
    sizes = {"a": 1, "b": 8 << 20, "c": 16 << 20}
    path = write_rows(
        tmp_path / "r.jsonl",
        [{"prompt": text, "answer": "x" * size} for text, size in sizes.items()],
    )
    with capture_logs() as told:
        split = load(jsonl_tasks(path))
    assert {prompt.text for prompt in split.train + split.held_out} == {"a", "b"}
    assert split.skipped == {"oversized": 1}
    assert [(line["log_level"], line["dataset"], line["prompts"]) for line in told] == [
        ("warning", "rows", 1)
    ]
    largest = max(split.train + split.held_out, key=lambda prompt: len(prompt.reference))
    task = make_task(1, reference=largest.reference)
    assert decode_task(encode_task(task)).reference == largest.reference


def test_the_template_and_the_fields_of_a_file_are_used(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "r.jsonl", [{"q": "{x} 1?", "a": 1}, {"q": "2?", "a": 2}])
    split = load(jsonl_tasks(path, prompt_field="q", answer_field="a", template="Q: {prompt}\nA:"))
    prompts = {prompt.text: prompt.reference for prompt in split.train + split.held_out}
    assert prompts == {"Q: {x} 1?\nA:": "1", "Q: 2?\nA:": "2"}


def test_a_chat_of_one_message_is_its_text(tmp_path: Path) -> None:
    """TRL's and verl's data sets hold prompts so."""
    rows = [
        {"prompt": [{"role": "user", "content": f"{n} + 1"}], "answer": n + 1} for n in range(2)
    ]
    split = load(jsonl_tasks(write_rows(tmp_path / "r.jsonl", list(rows))))
    assert {prompt.text: prompt.reference for prompt in split.train + split.held_out} == {
        "0 + 1": "1",
        "1 + 1": "2",
    }


def test_a_chat_of_several_messages_goes_whole_through_the_chat_template(tmp_path: Path) -> None:
    """verl's rows: fields in fields, a system message; and one earlier turn.

    The template is asked by Transformers.
    """
    chats: list[list[dict[str, Any]]] = [
        [{"role": "system", "content": "[s]"}, {"role": "user", "content": f"{n}+1"}]
        if n
        else [
            {"role": "user", "content": "1+1"},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": [{"type": "text", "text": "0+1"}]},
        ]
        for n in range(3)
    ]
    rows = [
        {"prompt": chat, "reward_model": {"ground_truth": str(n)}} for n, chat in enumerate(chats)
    ]
    path = write_rows(tmp_path / "r.jsonl", list(rows))
    split = load(jsonl_tasks(path, answer_field="reward_model.ground_truth", template="{prompt}="))
    prompts = sorted(split.train + split.held_out, key=lambda prompt: prompt.reference)
    assert [prompt.text for prompt in prompts] == ["1+1\n\n2\n\n0+1=", "[s]\n\n1+1=", "[s]\n\n2+1="]
    made = tokenizer()
    made.chat_template = (
        "{% for m in messages %}[{{ m.role[0] | upper }} {{ m.content }}]{% endfor %}"
    )
    for prompt, chat in zip(prompts, chats, strict=True):
        last = chat[-1]["content"]
        question = last if isinstance(last, str) else "0+1"
        theirs = made.apply_chat_template(
            [*chat[:-1], {"role": "user", "content": f"{question}="}], tokenize=False
        )
        assert render(made, prompt.messages, PromptFormat(system="not asked for")) == (
            (theirs, True) if chat[0]["role"] == "system" else (f"[S not asked for]{theirs}", True)
        )
    made.chat_template = None
    assert render(made, prompts[1].messages, PromptFormat())[0] == "[s]\n\n1+1="
    assert render(made, prompts[0].messages, PromptFormat(layout="think", system="T"))[0] == (
        "T\n\nUser: 1+1\n\nAssistant: 2\n\nUser: 0+1=\n\nAssistant:"
    )


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    vocabulary = {"<pad>": 0, "<eos>": 1} | {
        c: i for i, c in enumerate("0123456789+= []U", start=2)
    }
    characters = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    characters.decoder = decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=characters, eos_token="<eos>", pad_token="<pad>"
    )


def test_prompts_that_are_too_long_are_skipped_and_counted_and_the_chat_template_is_used() -> None:
    prompts = [
        Prompt(str(i), "d", text, "1", "exact") for i, text in enumerate(["1+1=", "1234+1234="])
    ]
    plain = tokenizer()
    kept, skipped = tokenize_prompts(plain, prompts, max_prompt_tokens=6)
    assert [plain.decode(item.token_ids) for item in kept] == ["1+1="]
    assert skipped == 1
    plain.chat_template = "{% for m in messages %}[U {{ m.content }}]{% endfor %}"
    kept, _ = tokenize_prompts(plain, prompts, max_prompt_tokens=20)
    assert [plain.decode(item.token_ids) for item in kept] == ["[U 1+1=]", "[U 1234+1234=]"]


def test_tasks_never_import_torch() -> None:
    program = (
        "import sys, rollcast.tasks.prompts, rollcast.tasks.verifiers, rollcast.tasks.tokens, "
        "rollcast.tasks.sandbox\n"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
