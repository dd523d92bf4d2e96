"""Environments behind a server of the package `openenv`, reached by its own client in its own
virtual environment.
"""
