"""Tasksets of the package `verifiers`, unchanged: in their own virtual environment, through the generator's endpoint."""
