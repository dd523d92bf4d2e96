"""Rollcast: reinforcement learning of language models that forecasts its own end."""

__version__ = "0.1.0"
