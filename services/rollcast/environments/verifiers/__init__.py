"""Tasksets of the package `verifiers`, unchanged: they run in its own virtual environment and ask the generator's endpoint."""
