"""A tiny model that calls a tool, made in a second without training.

Its layers add nothing, so that a token's embedding alone decides the next one: a turn is a call or an answer, then the
end of the turn. Training moves these probabilities as any other model's.
"""

from __future__ import annotations

from pathlib import Path

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
"""
HIDDEN = 64


def make_calling_model(folder: Path, *, max_length: int) -> None:
    """Write config, float32 weights and tokenizer of a Qwen3."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    text = Tokenizer(models.BPE(vocab={byte: index for index, byte in enumerate(alphabet)}, merges=[]))
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text.decoder = decoders.ByteLevel()
    text.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    text.add_tokens([AddedToken(token_text, special=False, normalized=False) for token_text in (CALL, ANSWER)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=text, eos_token="<|end|>", pad_token="<pad>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=max_length,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    call, answer, assistant, end = tokenizer.convert_tokens_to_ids([CALL, ANSWER, "<|assistant|>", "<|end|>"])
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        embeddings = model.model.embed_tokens.weight
        embeddings.copy_(torch.nn.functional.normalize(torch.randn_like(embeddings)))
        # The norm before the head gives an embedding the length sqrt(HIDDEN).
        head = model.lm_head.weight.copy_(torch.zeros_like(embeddings))
        head[call] = embeddings[assistant] * LOGIT / HIDDEN**0.5
        # An answer has this logit if a call has LOGIT: about one turn in four answers
        head[answer] = embeddings[assistant] * 10.8 / HIDDEN**0.5
        head[end] = (embeddings[call] + embeddings[answer]) * LOGIT / HIDDEN**0.5
    model.save_pretrained(folder)
