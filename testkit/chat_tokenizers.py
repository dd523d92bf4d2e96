"""Tokenizers with a chat template and tools, and tiny random models that have one: made on the
spot, no network.

    qwen3      format of the renderer `qwen3`: ChatML, calls in <tool_call>, thinking stripped at
               the next user turn
    llama_3    format of the renderer `llama-3`: one call a turn, bare JSON; a date in the system
               turn
    chatml     ChatML with calls in <call>, which no renderer of the package knows; thinking stays
    inst       turns in [INST] and </s>; knows no tools and refuses the role

All are byte-level BPE with a few merges, so any text can be written and most can be written in
several ways.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

Kind = Literal["qwen3", "llama_3", "chatml", "inst"]

SPECIAL_TOKENS: dict[Kind, tuple[str, ...]] = {
    "qwen3": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "llama_3": (
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|python_tag|>",
    ),
    "chatml": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "inst": ("<s>", "</s>", "[INST]", "[/INST]"),
}
WHOLE_TOKENS: dict[Kind, tuple[str, ...]] = {
    "qwen3": (
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        "<think>",
        "</think>",
    ),
    "llama_3": (),
    "chatml": ("<call>", "</call>"),
    "inst": (),
}
"""Tokens that a decoder keeps although it skips special ones."""
END_OF_TURN: dict[Kind, str] = {
    "qwen3": "<|im_end|>",
    "llama_3": "<|eot_id|>",
    "chatml": "<|im_end|>",
    "inst": "</s>",
}
PADDING: dict[Kind, str] = {
    "qwen3": "<|endoftext|>",
    "llama_3": "<|end_of_text|>",
    "chatml": "<|endoftext|>",
    "inst": "<s>",
}
MERGED_TEXT = (
    (
        'user assistant system tool {"name": "add", "arguments": {"a": 1, "b": 22}} {"parameters": '
        '{"text": "the answer"}}'
    ),
    (
        "the result is the number that the user wants; think about the answer, then call the tool "
        "with the numbers"
    ),
)
"""The BPE merges are trained on it."""

QWEN3_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n' }}
    {{- 'You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
    {{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments within ' }}
    {{- '<tool_call></tool_call> XML tags:\\n<tool_call>\\n' }}
    {{- '{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set found = namespace(query=messages | length - 1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- set text = message.content.strip() %}
        {%- if not (text.startswith('<tool_response>') and text.endswith('</tool_response>')) %}
            {%- set found.query = loop.index0 %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
            {%- set content = content.split('</think>', 1)[1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > found.query and (loop.last or reasoning) %}
            {{- '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- if content or not loop.first %}{{- '\\n' }}{%- endif %}
            {%- set function = call.function or call %}
            {{- '<tool_call>\\n{"name": "' + function.name + '", "arguments": ' }}
            {{- function.arguments if function.arguments is string else function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- elif message.role != 'system' or not loop.first %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""  # noqa: E501

LLAMA_3_TEMPLATE = """\
{%- macro turn(role, text) %}
    {{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' + text + '<|eot_id|>' }}
{%- endmacro %}
{%- set begun = namespace(messages=messages, system='') %}
{%- if messages[0].role == 'system' %}
    {%- set begun.system = messages[0].content | trim %}
    {%- set begun.messages = messages[1:] %}
{%- endif %}
{{- '<|begin_of_text|><|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools %}{{- 'Environment: ipython\\n' }}{%- endif %}
{{- 'Cutting Knowledge Date: December 2023\\nToday Date: 26 Jul 2024\\n\\n' + begun.system + '<|eot_id|>' }}
{%- for message in begun.messages %}
    {%- if message.role in ['tool', 'ipython'] %}
        {{- turn('ipython', message.content | tojson) }}
    {%- elif message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}{{ raise_exception('one call a turn') }}{%- endif %}
        {%- set function = message.tool_calls[0].function %}
        {%- set given = function.arguments %}
        {%- set written = given if given is string else given | tojson %}
        {{- turn('assistant', '{"name": "' + function.name + '", "parameters": ' + written + '}') }}
    {%- elif loop.first and tools and message.role == 'user' %}
        {{- '<|start_header_id|>user<|end_header_id|>\\n\\nGiven the following functions, ' }}
        {{- 'please respond with a JSON for a function call with its proper arguments ' }}
        {{- 'that best answers the given prompt.\\n\\n' }}
        {{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}
        {{- 'Do not use variables.\\n\\n' }}
        {%- for tool in tools %}{{- (tool | tojson(indent=4)) + '\\n\\n' }}{%- endfor %}
        {{- (message.content | trim) + '<|eot_id|>' }}
    {%- else %}
        {{- turn(message.role, message.content | trim) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""  # noqa: E501

CHATML_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>tools\\n' }}
    {%- for tool in tools %}{{- (tool.function | tojson) + '\\n' }}{%- endfor %}
    {{- 'Call with <call>{"name": ..., "arguments": {...}}</call>.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role }}
    {%- if message.role == 'tool' %}{{- ' ' + message.name }}{%- endif %}
    {{- '\\n' }}
    {%- if message.reasoning_content %}{{- '<think>' + message.reasoning_content + '</think>' }}{%- endif %}
    {{- message.content or '' }}
    {%- for call in message.tool_calls or [] %}
        {{- '<call>{"name": "' + call.function.name + '", "arguments": ' }}
        {{- (call.function.arguments | tojson) + '}</call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""  # noqa: E501

INST_TEMPLATE = """\
{{- '<s>' }}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- ' ' + message.content + '</s>' }}
    {%- elif message.role == 'tool' %}
        {{- raise_exception('no tools') }}
    {%- else %}
        {{- '[INST] ' + message.role + ': ' + message.content + ' [/INST]' }}
    {%- endif %}
{%- endfor %}
"""

TEMPLATES: dict[Kind, str] = {
    "qwen3": QWEN3_TEMPLATE,
    "llama_3": LLAMA_3_TEMPLATE,
    "chatml": CHATML_TEMPLATE,
    "inst": INST_TEMPLATE,
}


def make_chat_tokenizer(kind: Kind, template: str | None = None) -> Any:
    """A fast Hugging Face tokenizer with the template of this kind, or with another template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    text = Tokenizer(models.BPE())
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    # 256 bytes, and at most 96 merges: MERGED_TEXT may have fewer
    trainer = trainers.BpeTrainer(vocab_size=352, initial_alphabet=alphabet, show_progress=False)
    text.train_from_iterator(MERGED_TEXT, trainer)
    text.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS[kind]]
    )
    text.add_tokens(
        [AddedToken(token, special=False, normalized=False) for token in WHOLE_TOKENS[kind]]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=text,
        eos_token=END_OF_TURN[kind],
        pad_token=PADDING[kind],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = template or TEMPLATES[kind]
    return tokenizer


def write_chat_tokenizer(folder: Path, kind: Kind, template: str | None = None) -> int:
    """Write such a tokenizer; returns how many tokens it has."""
    tokenizer = make_chat_tokenizer(kind, template)
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def make_tiny_chat_model(
    folder: Path, kind: Kind, *, seed: int = 0, max_length: int = 2_048
) -> None:
    """Write config, float32 weights and tokenizer of a random Qwen3 (Llama for `llama_3`); some 0.2
    million parameters.

    It ends a turn after some dozens of tokens, and writes any token of its vocabulary, malformed
    calls included.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    tokenizer = make_chat_tokenizer(kind)
    tokenizer.save_pretrained(folder)
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": max_length,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "tie_word_embeddings": False,
        "initializer_range": 0.08,
    }
    torch.manual_seed(seed)
    is_llama = kind == "llama_3"
    model = (
        LlamaForCausalLM(LlamaConfig(**shape))
        if is_llama
        else Qwen3ForCausalLM(Qwen3Config(**shape))
    )
    with torch.no_grad():
        model.lm_head.weight.mul_(4.0)
        model.lm_head.weight[tokenizer.eos_token_id] = 0.0
    model.save_pretrained(folder)
