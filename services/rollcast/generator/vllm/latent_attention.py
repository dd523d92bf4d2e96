"""Latent attention (DeepSeek): vLLM computes with matrices that it derives from a weight when it
loads the model.

A version that is loaded in place changes that weight alone, so they are derived again.
"""

import torch


def derive_again(model: torch.nn.Module, dtype: torch.dtype) -> set[str]:
    """Derive these weights; return their names.

    Call it after every load in place. `dtype`: the model's.
    """
    from vllm.model_executor.layers.attention.mla_attention import MLAAttention

    derived: set[str] = set()
    for name, layer in model.named_modules():
        if isinstance(layer, MLAAttention):
            # In the same memory, so that CUDA graphs stay valid.
            layer.process_weights_after_loading(dtype)
            derived.update(
                f"{name}.{parameter_name}"
                for parameter_name, _ in layer.named_parameters(recurse=False)
            )
    return derived
