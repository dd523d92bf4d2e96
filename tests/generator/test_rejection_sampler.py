"""vLLM's rejection sampler on a CPU samples from the model's distribution, whatever is drafted."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import chisquare

pytestmark = pytest.mark.engine

TOKENS = 7
REQUESTS = 6_000
"""Of each temperature."""


@pytest.fixture(scope="module")
def kernels() -> None:
    """Those of a worker."""
    from vllm.platforms import current_platform

    from rollcast.generator.vllm.plugin import register

    register()
    current_platform.import_kernels()
    with pytest.MonkeyPatch.context() as patch:
        # vLLM looks through all modules, and stumbles over what another test has imported
        for name in [name for name in sys.modules if name.startswith("llvmlite")]:
            patch.delitem(sys.modules, name)
        current_platform.register_triton_kernel_overrides()


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("drafter", ["certain", "another model"])
def test_the_sampled_distribution_and_its_log_probs_are_the_models_own(
    drafter: str, top_k: int | None
) -> None:
    """One draft for each request; half of the requests have another temperature."""
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.sample.rejection_sampler import RejectionSampler
    from vllm.v1.sample.sampler import Sampler
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    torch.manual_seed(1)
    num_requests = 2 * REQUESTS
    temperature = torch.tensor([1.0, 0.7]).repeat(REQUESTS)
    # Rows of a request: of its draft, and of the token after it.
    logits = torch.randn(2, TOKENS)
    draft_probs = None
    drafts = logits[0].argmax().repeat(num_requests)
    if drafter == "another model":
        draft_probs = torch.randn(TOKENS).softmax(0).repeat(num_requests, 1)
        drafts = torch.multinomial(draft_probs, 1)[:, 0]
    rows = torch.arange(num_requests)
    metadata = SpecDecodeMetadata(
        draft_token_ids=drafts.int(),
        num_draft_tokens=[1] * num_requests,
        cu_num_draft_tokens=(rows + 1).int(),
        cu_num_sampled_tokens=(2 * rows + 2).int(),
        target_logits_indices=2 * rows,
        bonus_logits_indices=2 * rows + 1,
        logits_indices=torch.arange(2 * num_requests),
    )
    none = torch.zeros(num_requests)
    sampling = SamplingMetadata(
        temperature=temperature,
        all_greedy=False,
        all_random=True,
        top_p=None,
        top_k=None if top_k is None else torch.full((num_requests,), top_k, dtype=torch.int32),
        generators={},
        max_num_logprobs=0,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=none,
        presence_penalties=none,
        repetition_penalties=none,
        output_token_ids=[[] for _ in range(num_requests)],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )
    sampler = RejectionSampler(Sampler(logprobs_mode="processed_logprobs"))
    output = sampler(metadata, draft_probs, logits.repeat(num_requests, 1), sampling)
    tokens = output.sampled_token_ids.numpy()
    logprobs = output.logprobs_tensors.logprobs[:, 0].view(num_requests, 2).numpy()
    for first, warmth in enumerate((1.0, 0.7)):
        expected = [model_probs(row.double().numpy(), warmth, top_k) for row in logits]
        sampled = tokens[first::2]
        check_distribution(sampled[:, 0], expected[0])
        np.testing.assert_allclose(
            logprobs[first::2, 0], np.log(expected[0][sampled[:, 0]]), atol=1e-5
        )
        # The token after an accepted draft.
        accepted = sampled[:, 1] >= 0
        assert 0 < accepted.sum() < REQUESTS
        check_distribution(sampled[accepted, 1], expected[1])
        np.testing.assert_allclose(
            logprobs[first::2, 1][accepted],
            np.log(expected[1][sampled[accepted, 1]]),
            atol=1e-5,
        )


def model_probs(
    logits: NDArray[np.float64], temperature: float, top_k: int | None
) -> NDArray[np.float64]:
    weights = np.exp(logits / temperature)
    if top_k is not None:
        weights[np.argsort(weights)[:-top_k]] = 0.0
    return np.asarray(weights / weights.sum())


def check_distribution(tokens: NDArray[np.int32], probs: NDArray[np.float64]) -> None:
    counts = np.bincount(tokens, minlength=TOKENS)
    possible = probs > 0
    assert not counts[~possible].any()
    assert chisquare(counts[possible], counts.sum() * probs[possible]).pvalue > 1e-4
