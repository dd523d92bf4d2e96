"""vLLM's files of models that take more than text, on a machine without torchvision.

They import Transformers' image processors, and these torchvision. The lists of packages for CPUs
leave it out, because its usual builds break a CPU build of torch. The text model alone calls none
of it.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import torch

NEEDED = (
    "torchvision",
    "torchvision.transforms",
    "torchvision.transforms.v2",
    "torchvision.transforms.v2.functional",
)
"""Imported at the top of these files, and used for images only."""


def leave_out_torchvision() -> None:
    """Let vLLM import the file of a model with empty modules in the place of torchvision if it is
    not installed.
    """
    if importlib.util.find_spec("torchvision") is not None:
        return
    from transformers.utils import is_torchvision_available
    from vllm.model_executor.models.registry import _LazyRegisteredModel as Registered

    is_torchvision_available()  # remembers that it is not there
    load: Callable[[Registered], type[torch.nn.Module]] = Registered.load_model_cls

    def load_without_torchvision(model: Registered) -> type[torch.nn.Module]:
        with _empty_torchvision():
            return load(model)

    Registered.load_model_cls = load_without_torchvision


@contextmanager
def _empty_torchvision() -> Iterator[None]:
    """Only while a file is imported: other packages of the process ask whether torchvision is
    there.
    """
    for name in NEEDED:
        sys.modules[name] = ModuleType(name)
    for name in NEEDED[1:]:
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, sys.modules[name])
    try:
        yield
    finally:
        for name in NEEDED:
            sys.modules.pop(name, None)
