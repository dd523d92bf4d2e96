"""Settings of LoRA: small adapters are trained next to a frozen model."""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import Settings
from rollcast.config.errors import UserError

LINEAR_LAYERS = (
    "q_proj",
    "k_proj",
    "v_proj",
    "qkv_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "gate_up_proj",
    "down_proj",
)
"""Names of the linear layers of attention and feed-forward, as Transformers and vLLM call them."""
ENGINE_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM can make room for."""


class Lora(Settings):
    """The model itself stays as it is, in `model.dtype`. Each of `targets` gets two small matrices:
    `y = W x + alpha / rank * B A x`. Only they are trained, published, checkpointed and exported
    (in PEFT's format)."""

    rank: Annotated[int, Field(ge=1, le=512)] = 32
    """Rows of A and columns of B. The trained weights, and the bytes of a version, grow with it.
    32, because reinforcement learning reached full fine-tuning even with rank 1 in "LoRA without
    regret". vLLM allows 512 at most."""
    alpha: Annotated[int, Field(ge=1)] = 32
    """The update is multiplied by alpha / rank, so that the best learning rate hardly depends on
    the rank. 32 is the value of "LoRA without regret", whose rule for the rate holds for it."""
    targets: (
        Literal["all-linear"] | Annotated[tuple[str, ...], Field(min_length=1, max_length=100)]
    ) = "all-linear"
    """Names of the layers that get an adapter, such as [q_proj, v_proj]. `all-linear`: every linear
    layer of attention and feed-forward, because attention alone learned less. Experts cannot be
    named: a mixture needs the layers of its attention."""

    @property
    def scaling(self) -> float:
        return self.alpha / self.rank

    @property
    def engine_rank(self) -> int:
        """The rank that the generators make room for."""
        return min(rank for rank in ENGINE_RANKS if rank >= self.rank)

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers by name."""
        return LINEAR_LAYERS if self.targets == "all-linear" else self.targets


def check_gpu_dtype(lora: Lora | None, dtype: str) -> None:
    """Raise UserError if a GPU cannot serve the adapters: vLLM's kernels for them refuse float32
    there, not on a CPU.
    """
    if lora is not None and dtype == "float32":
        raise UserError(
            "model.dtype = float32: on a GPU vLLM applies adapters in bfloat16 only; set that, or "
            "train every weight without model.lora"
        )
