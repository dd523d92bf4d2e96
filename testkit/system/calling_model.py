"""A tiny model that calls a tool: a turn is a call or an answer, then the end of the turn."""

from __future__ import annotations

from pathlib import Path

from testkit.next_token_model import write_next_token_model

CALL = '<call>{"name": "step", "arguments": {}}</call>'
ANSWER = "done"
LOGIT = 12.0
"""A token that shall follow has this logit; some hundred others have about 1."""
MARKS = ("<pad>", "<|tools|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")
TEMPLATE = """\
{%- if tools %}{{- '<|tools|>' }}{%- for tool in tools %}{{- tool.function.name }}{%- endfor %}{%- endif %}
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


def make_calling_model(folder: Path, *, max_length: int) -> None:
    """Write config, float32 weights and tokenizer of a Qwen3."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    text = Tokenizer(
        models.BPE(vocab={byte: index for index, byte in enumerate(alphabet)}, merges=[])
    )
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text.decoder = decoders.ByteLevel()
    text.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    text.add_tokens(
        [AddedToken(token_text, special=False, normalized=False) for token_text in (CALL, ANSWER)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=text, eos_token="<|end|>", pad_token="<pad>"
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)

    call, answer, assistant, end = tokenizer.convert_tokens_to_ids(
        [CALL, ANSWER, "<|assistant|>", "<|end|>"]
    )
    steps = [
        (assistant, call, LOGIT),
        # An answer has this logit if a call has LOGIT: about one turn in four answers
        (assistant, answer, 10.8),
        (call, end, LOGIT),
        (answer, end, LOGIT),
    ]
    write_next_token_model(folder, tokenizer, steps, hidden_size=64, max_length=max_length)
