"""Whether a model is a causal language model, as its config.json says: asked before anything is started."""

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.memory.model_file import read_here

_CAUSAL = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""Endings of the names of Transformers' classes that generate text. The last kind may also take images."""


def check_causal(model: Model) -> None:
    """Raises UserError for a model that this machine has and that samples no text.

    A model that is not here yet, or whose config.json names no class, is left to the trainer, which looks closer.
    """
    try:
        found = read_here(model.path)
    except (OSError, UserError):  # it cannot be read: whoever looks for weights says so
        return
    if found is None:
        return
    kind = found.get("model_type")
    classes = found.get("architectures")
    name = classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else ""
    if found.get("is_encoder_decoder") is True:
        raise UserError(
            f"model.path = {model.path}: is an encoder and a decoder, not a causal language model ({name or kind}); "
            "give a model that continues a text, such as Qwen/Qwen3-0.6B"
        )
    if name and not name.endswith(_CAUSAL) and found.get("is_decoder") is not True:
        raise UserError(
            f"model.path = {model.path}: is {name}, not a causal language model; give a model that continues a text, "
            "such as Qwen/Qwen3-0.6B"
        )
