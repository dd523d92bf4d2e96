"""Rollcast: reinforcement learning of language models that forecasts its own end.

    import rollcast

    f = rollcast.forecast("run.csv")

Importing it loads nothing else: what a forecast needs is loaded when it is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollcast.python import CurveForecast as CurveForecast
    from rollcast.python import InputError as InputError
    from rollcast.python import StepBundle as StepBundle
    from rollcast.python import forecast as forecast
    from rollcast.python import load_step as load_step

__version__ = "0.2.0"
_PYTHON = ("CurveForecast", "InputError", "StepBundle", "forecast", "load_step")


def __getattr__(name: str) -> Any:
    if name not in _PYTHON:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("rollcast.python"), name)


def __dir__() -> list[str]:
    return [*globals(), *_PYTHON]
