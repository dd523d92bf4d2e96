"""Prompts, data sets and verifiers."""
