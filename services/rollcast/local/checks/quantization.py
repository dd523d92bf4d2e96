"""Whether the engine must compile kernels for its quantization, and has no compiler."""

from collections.abc import Iterable

from rollcast.local.checks.check import Finding, Start, warnings

SETTINGS = ()
NEEDS_DEEP_GEMM = "fp8_per_block"
"""The quantization with scales for blocks of weights."""


def check(start: Start) -> Iterable[Finding]:
    """On Hopper and newer vLLM (model_executor/kernels/linear/scaled_mm/deep_gemm.py) chooses
    DeepGEMM for blocks of 128.
    """
    quantization = start.config.generator.engine.quantization
    if start.device is None or quantization != NEEDS_DEEP_GEMM:
        return ()
    return warnings(
        [
            f"generator.engine.quantization = {quantization}: on an H100 or newer vLLM computes it "
            "with DeepGEMM, which compiles its kernels with nvcc while the engine starts, and "
            "neither the image nor vLLM's wheel has nvcc; set fp8_per_channel, install CUDA's "
            "toolkit, or set VLLM_USE_DEEP_GEMM=0 for the generators"
        ]
    )
