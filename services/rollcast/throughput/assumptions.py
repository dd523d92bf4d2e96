"""Assumptions of the prediction: each a quantity with its unit and its source.

"Measured" means on one NVIDIA H200 with torch 2.11 and vLLM 0.32. "Chosen" means that it was not
measured.
"""

from dataclasses import dataclass

FLOPS_UTILIZATION_MEASURED = (
    (1.7e9, False, 0.263),
    (1.7e9, True, 0.212),
    (4.0e9, True, 0.298),
)
"""Model parameters, whether activations are recomputed, and MFU: model FLOPs over the card's peak.
Measured with padded rollouts of up to 4,149 (1.7 B) and 16,384 tokens (4 B). Recomputation takes
time but does not count as model FLOPs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Rates and lengths of a run that was not measured yet."""

    mean_tokens: float | None = None
    """Mean tokens of a completion. None = `mean_length_share` of recipe.max_completion_tokens."""
    mean_length_share: float = 0.3
    """Mean completion over the budget. Chosen: with `log_length_spread` one completion in 30
    reaches the budget, and a run with more truncated ones should be given a larger budget."""
    log_length_spread: float = 0.8
    """ln tokens: spread of lengths. Typical for reasoning models; `rollcast plan devices` assumes
    the same."""
    mean_prompt_share: float = 0.125
    """Mean prompt over recipe.max_prompt_tokens. Chosen: prompts are short compared with their
    limit and with completions."""
    filtered_share: float = 0.3
    """Share of the groups whose rewards are all equal: they are sampled but not trained. Chosen; it
    rises while a model learns."""
    flops_utilization: float | None = None
    """MFU of the trainer. None = the measured one of the nearest size
    (FLOPS_UTILIZATION_MEASURED)."""
    bandwidth_share: float = 0.8
    """Rate at which decoding reads weights and KV cache, over the card's memory bandwidth.
    Chosen."""
    product_share: float = 0.6
    """Rate of matrix products in the engine over the card's peak. Chosen: large square products
    reach 0.79 (measured), those of a decoding batch are thin."""
    engine_step_seconds: float = 2.5e-3
    """Time of one engine step that does not depend on the number of rollouts: scheduler, kernel
    launches, the way to the worker and back. See `engine_rollout_seconds`."""
    engine_rollout_seconds: float = 20e-6
    """Time of one engine step for each rollout in it: sampling, log-probs, bookkeeping. Measured
    together with `engine_step_seconds`: Qwen3-0.6B, 128 slots, 512 tokens, 19,400 tokens/s leave
    5.1 ms a step besides the reading of weights; one point cannot separate the two, so half of it
    is taken for each."""
    all_reduce_seconds: float = 15e-6
    """One all-reduce of a tensor-parallel generator, of which a layer has two. Chosen, for
    NVLink."""
    lane_bytes_per_second: float = 1e9
    """Rate at which one lane sends weights; every trainer rank has one. Measured with four lanes
    over loopback."""
    checkpoint_bytes_per_second: float = 1e9
    """Rate at which all ranks together write a checkpoint. Chosen: a network volume; a local NVMe
    disk is faster."""


def flops_utilization(active_parameters: float, *, recomputed: bool, has_experts: bool) -> float:
    """MFU measured at the nearest size."""
    measured = [
        (size, share)
        for size, with_it, share in FLOPS_UTILIZATION_MEASURED
        if with_it == recomputed
    ]
    _, nearest = min(
        measured,
        key=lambda point: max(point[0], active_parameters) / min(point[0], active_parameters),
    )
    # MFU of a mixture of experts over that of a dense model of its active size. Chosen: small
    # products, one for each expert, and the experts of a layer are gathered for few tokens.
    return nearest * 0.5 if has_experts else nearest
