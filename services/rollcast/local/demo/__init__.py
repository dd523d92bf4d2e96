"""The demo's own language model, trained from scratch before the first run."""
