"""Training of the demo's language model, a process: `python -m rollcast.local.demo.training
SETTINGS FOLDER`.
"""

import dataclasses
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

from rollcast.local.demo.base_model import BaseModel, Progress
from rollcast.tasks.arithmetic import CHARACTERS, draw_operands, prompt_text, worked_answer
from rollcast.tasks.grading import grade
from rollcast.telemetry.process_end import end

PAD = 0
EOS = 1
MAX_LENGTH = 128


def train_base_model(settings: BaseModel, folder: Path, progress: Progress) -> float:
    """Train and save the model with its tokenizer; returns the pass rate it starts RL with, sampled
    at temperature 1.

    The folder also holds `base_model.json` with the settings and that pass rate.
    """
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    rng = random.Random(f"base-model/{settings.seed}")
    tokenizer = make_tokenizer()
    model = _make_model()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _learning_rate_share(step, settings.steps)
    )
    for step in range(settings.steps):
        tokens, is_answer = _draw_batch(settings, rng, tokenizer)
        logits = model(torch.tensor(tokens[:, :-1])).logits
        mask = torch.tensor(is_answer[:, 1:])
        loss = F.cross_entropy(logits[mask], torch.tensor(tokens[:, 1:])[mask])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        progress((step + 1) / (settings.steps + 1))
    rng = random.Random(f"pass-rate/{settings.seed}")
    rate = measure_pass_rate(model, tokenizer, settings, rng)
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "base_model.json").write_text(
        json.dumps(dataclasses.asdict(settings) | {"pass_rate": rate}) + "\n"
    )
    progress(1.0)
    return rate


def _learning_rate_share(step: int, steps: int) -> float:
    """Linear warm-up over a twentieth of the training, then linear to zero."""
    warmup = max(1, steps // 20)
    return min((step + 1) / warmup, (steps - step) / (steps - warmup))


def measure_pass_rate(model: Any, tokenizer: Any, settings: BaseModel, rng: random.Random) -> float:
    """Share of right completions, one sampled for each of `settings.measured_prompts` additions."""
    import torch

    num_prompts = settings.measured_prompts
    operands = [draw_operands(rng, settings.max_digits) for _ in range(num_prompts)]
    tokenizer.padding_side = "left"
    prompts = tokenizer([prompt_text(a, b) for a, b in operands], padding=True, return_tensors="pt")
    model.eval()
    with torch.no_grad():
        sampled = model.generate(
            **prompts, max_new_tokens=64, do_sample=True, temperature=1.0, top_k=0, top_p=1.0
        )
    tokenizer.padding_side = "right"
    model.train()
    completions = tokenizer.batch_decode(
        sampled[:, prompts["input_ids"].shape[1] :], skip_special_tokens=True
    )
    rewards = [
        grade("arithmetic", completion, json.dumps(str(a + b))).reward
        for (a, b), completion in zip(operands, completions, strict=True)
    ]
    return sum(rewards) / num_prompts


def make_tokenizer() -> Any:
    """One token per character, no beginning-of-sequence token."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<pad>": PAD, "<eos>": EOS} | {
        character: i for i, character in enumerate(CHARACTERS, start=2)
    }
    characters = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    characters.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=characters,
        eos_token="<eos>",  # noqa: S106  # not a password
        pad_token="<pad>",  # noqa: S106
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )


def _make_model() -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=32,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    return Qwen3ForCausalLM(config)


def _draw_batch(settings: BaseModel, rng: random.Random, tokenizer: Any) -> tuple[Any, Any]:
    """Token ids [batch, longest] padded on the right, and a mask of the answer's tokens (end
    included).
    """
    import numpy as np

    rows = []
    for _ in range(settings.batch):
        a, b = draw_operands(rng, settings.max_digits)
        prompt = tokenizer(prompt_text(a, b))["input_ids"]
        answer = tokenizer(worked_answer(a, b, rng, settings.noise))["input_ids"]
        rows.append((prompt, [*answer, EOS]))
    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    tokens = np.full((settings.batch, longest), PAD, dtype=np.int64)
    is_answer = np.zeros((settings.batch, longest), dtype=bool)
    for row, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        tokens[row, :end] = prompt + answer
        is_answer[row, len(prompt) : end] = True
    return tokens, is_answer


def main(arguments: list[str]) -> int:
    """Train as a process of its own; prints the share of the work done, a line after each step."""
    settings = BaseModel(**json.loads(arguments[0]))
    folder = Path(arguments[1])
    try:
        train_base_model(settings, folder, lambda share: print(share, flush=True))
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        print(f"{error.strerror or error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    end(main(sys.argv[1:]))
