"""A tiny model that knows how tools are called, and a file of tasks: `python make_model.py`, some
minutes on a core.

The model is a Qwen3 of 0.6 million parameters, trained from scratch on conversations in which many
calls are wrong: so it writes calls that can be read, and solves about a third of the tasks. What it
lacks is what the run has to teach.
"""

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NUM_TASKS = 3_000
NUM_STEPS = 500
BATCH = 32
LEARNING_RATE = 1.5e-3
NOISE = 0.45
"""Probability that a call of a training conversation is wrong."""
LARGEST_NUMBER = 20
MAX_LENGTH = 256
SEED = 0
IGNORED = -100
SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*"}
MARKS = ("<pad>", "<|tools|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")
PARTS = (
    *(f'<call>{{"name": "{name}", "arguments": {{"a": ' for name in SYMBOLS),
    ', "b": ',
    "}}</call>",
)
"""Pieces of a call that are one token each, so that a small model can write them."""
TEMPLATE = """\
{%- if tools %}{{- '<|tools|>' }}{%- for tool in tools %}{{- tool.function.name + ' ' }}{%- endfor %}{%- endif %}
{%- for message in messages %}
    {{- '<|' + message.role + '|>' + (message.content or '') }}
    {%- for call in message.tool_calls or [] %}
        {{- '<call>{"name": "' + call.function.name + '", "arguments": ' }}
        {{- (call.function.arguments | tojson) + '}</call>' }}
    {%- endfor %}
    {{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}
"""  # noqa: E501


@dataclass(frozen=True)
class Operation:
    """A tool and its two operands; an operand is a number, or the operation that gives it."""

    tool: str
    a: "Operation | int"
    b: "Operation | int"

    def value(self) -> int:
        a = value_of(self.a)
        b = value_of(self.b)
        return {"add": a + b, "subtract": a - b, "multiply": a * b}[self.tool]

    def text(self) -> str:
        return f"{written(self.a)}{SYMBOLS[self.tool]}{written(self.b)}"


def value_of(operand: Operation | int) -> int:
    return operand if isinstance(operand, int) else operand.value()


def written(operand: Operation | int) -> str:
    return str(operand) if isinstance(operand, int) else f"({operand.text()})"


def draw(rng: random.Random) -> Operation:
    """Two or three operations, one inside the other."""
    operation = Operation(rng.choice(list(SYMBOLS)), number(rng), number(rng))
    for _ in range(rng.choice((1, 2))):
        tool = rng.choice(list(SYMBOLS))
        operation = rng.choice(
            (Operation(tool, operation, number(rng)), Operation(tool, number(rng), operation))
        )
    return operation


def number(rng: random.Random) -> int:
    return rng.randint(1, LARGEST_NUMBER)


def conversation(task: Operation, rng: random.Random) -> list[dict[str, Any]]:
    """The messages that solve a task, with wrong calls among them."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.text()}]
    result = 0
    for operation, is_first in in_order(task):
        a = value_of(operation.a) if is_first or isinstance(operation.a, int) else result
        b = value_of(operation.b) if is_first or isinstance(operation.b, int) else result
        tool = operation.tool
        if rng.random() < NOISE:
            mistake = rng.choice(("tool", "order", "number"))
            tool = rng.choice(list(SYMBOLS)) if mistake == "tool" else tool
            a, b = (b, a) if mistake == "order" else (a, b)
            a = number(rng) if mistake == "number" else a
        result = Operation(tool, a, b).value()
        call = {"type": "function", "function": {"name": tool, "arguments": {"a": a, "b": b}}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "name": tool, "content": str(result)})
    return [*messages, {"role": "assistant", "content": str(result)}]


def in_order(task: Operation) -> list[tuple[Operation, bool]]:
    """The operations from the innermost on; True = its operands are both numbers."""
    inner = next((operand for operand in (task.a, task.b) if isinstance(operand, Operation)), None)
    if inner is None:
        return [(task, True)]
    return [*in_order(inner), (task, False)]


def make_tokenizer() -> Any:
    """One token for a byte, a mark, or a part of a call."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    text = Tokenizer(
        models.BPE(vocab={byte: place for place, byte in enumerate(alphabet)}, merges=[])
    )
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text.decoder = decoders.ByteLevel()
    text.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    text.add_tokens([AddedToken(part, special=False, normalized=False) for part in PARTS])
    made = PreTrainedTokenizerFast(
        tokenizer_object=text,
        eos_token="<|end|>",  # noqa: S106  # no password
        pad_token="<pad>",  # noqa: S106
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = TEMPLATE
    return made


def make_model(vocabulary: int, tokenizer: Any) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def tokens_of(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]], tokenizer: Any
) -> tuple[list[int], list[int]]:
    """The tokens of a conversation, and its labels: what the assistant wrote, the end of its turns
    included.
    """
    tokens = tokenizer.apply_chat_template(messages, tools=tools, tokenize=True, return_dict=False)
    assistant, end = tokenizer.convert_tokens_to_ids(["<|assistant|>", "<|end|>"])
    labels = []
    is_assistants = False
    for token in tokens:
        labels.append(token if is_assistants else IGNORED)
        is_assistants = (is_assistants or token == assistant) and token != end
    return tokens, labels


def train(folder: Path) -> None:
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    tokenizer = make_tokenizer()
    model = make_model(len(tokenizer), tokenizer)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=NUM_STEPS, pct_start=0.05
    )
    # In the order in which a class's tools are listed: a small model has seen no other.
    tools = [{"type": "function", "function": {"name": name}} for name in sorted(SYMBOLS)]
    for step in range(NUM_STEPS):
        rows = [tokens_of(conversation(draw(rng), rng), tools, tokenizer) for _ in range(BATCH)]
        longest = max(len(tokens) for tokens, _ in rows)
        padded = [tokens + [tokenizer.pad_token_id] * (longest - len(tokens)) for tokens, _ in rows]
        wanted = [labels + [IGNORED] * (longest - len(labels)) for _, labels in rows]
        logits = model(torch.tensor(padded)).logits[:, :-1]
        loss = F.cross_entropy(
            logits.flatten(0, 1), torch.tensor(wanted)[:, 1:].flatten(), ignore_index=IGNORED
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step} of {NUM_STEPS}: loss {loss.item():.3f}", flush=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_tasks(file: Path) -> None:
    rng = random.Random(SEED + 1)
    tasks = {task.text(): task for task in (draw(rng) for _ in range(NUM_TASKS))}
    rows = [{"prompt": text, "answer": task.value()} for text, task in tasks.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> None:
    place = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    place.mkdir(parents=True, exist_ok=True)
    write_tasks(place / "tasks.jsonl")
    train(place / "model")


if __name__ == "__main__":
    main()
