"""The weights that Transformers' own class makes of a config.json, as a program:

    python -m rollcast.memory.meta_device < config.json

It is a process of its own because the planner is free of torch. On the meta device the model takes
no memory.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from rollcast.memory.architecture import Shape

_NOT_SETTINGS = ("model_type", "quantization_config", "weights")


def shapes_on_meta_device(settings: Mapping[str, Any]) -> dict[str, Shape]:
    """Every weight by its name, tied ones once. `settings`: config.json of a text model."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    model_settings = {name: value for name, value in settings.items() if name not in _NOT_SETTINGS}
    config = AutoConfig.for_model(settings["model_type"], **model_settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return {name: tuple(weight.shape) for name, weight in model.named_parameters()}


if __name__ == "__main__":
    print(json.dumps(shapes_on_meta_device(json.load(sys.stdin))))
