"""The FP32 head's switch, seen in the logits of both sides: a bfloat16 Gemma 2, whose logits are
capped as well.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from rollcast.config.run import parse_run_config
from rollcast.trainer.learner.head import Head, LogitShape, Precision
from rollcast.wire.version import PolicyVersion
from testkit.tiny_model import make_architecture
from tests.generator.live_pair import start_engine

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

CAP = 4.0
TOKENS = 50


async def generator_logits(folder: Path, lm_head: Precision, hidden: Tensor) -> tuple[str, Tensor]:
    """Dtype and values of what vLLM's model makes of `hidden` with the weights in `folder`."""
    config = parse_run_config(
        {
            "run": "head",
            "folder": str(folder / "runs"),
            "model": {"path": str(folder), "dtype": "bfloat16", "max_length": 256},
            "recipe": {
                "lm_head": lm_head,
                "length_control": {"kind": "none"},
                "max_prompt_tokens": 64,
                "max_completion_tokens": 128,
            },
            "generator": {"slots": 16, "block_size": 32},
        },
        source="test",
    )
    engine = await start_engine(config, worker="tests.generator.head_probe.HeadProbe")
    try:
        await engine.update(PolicyVersion(1, 0), "load_file", str(folder / "model.safetensors"))
        dtype, values = (await engine.call("probe_head", hidden.tolist()))[0]
    finally:
        engine.shutdown()
    return dtype, torch.tensor(values)


def share_of_bfloat16(values: Tensor) -> float:
    return float((values.bfloat16().float() == values).float().mean())


@pytest.mark.parametrize("lm_head", ["fp32", "model"])
async def test_both_sides_compute_the_logits_in_the_precision_asked_for(
    tmp_path: Path, lm_head: Precision
) -> None:
    from safetensors.torch import load_file

    make_architecture(tmp_path, "gemma2")
    weight = load_file(tmp_path / "model.safetensors")["model.embed_tokens.weight"].bfloat16()
    hidden = (
        torch.randn(TOKENS, weight.shape[1], generator=torch.Generator().manual_seed(5))
        .mul(3.0)
        .bfloat16()
    )
    dtype, generator = await generator_logits(tmp_path, lm_head, hidden.float())
    exact = CAP * torch.tanh(hidden.double() @ weight.double().t() / CAP)
    narrow = torch.tanh((hidden @ weight.t()) / CAP) * CAP
    if lm_head == "fp32":
        assert dtype == "float32"
        assert share_of_bfloat16(generator) < 0.05
        torch.testing.assert_close(generator.double(), exact, rtol=0, atol=1e-5)
    else:
        assert dtype == "bfloat16"
        assert share_of_bfloat16(generator) == 1.0
        torch.testing.assert_close(generator, narrow.float(), rtol=2**-7, atol=2**-7)
        assert (generator.double() - exact).abs().max() > 1e-3

    head = Head(torch.nn.Parameter(weight), precision=lm_head, shape=LogitShape(cap=CAP))
    targets = torch.arange(TOKENS) % weight.shape[0]
    trainer, _ = head(hidden, targets)
    sampled = torch.log_softmax(generator, dim=1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(
        trainer.detach(), sampled, rtol=0, atol=1e-5 if lm_head == "fp32" else 2**-6
    )
