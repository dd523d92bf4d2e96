"""Harness sessions of OpenEnv, unchanged: each in a process of their own virtual environment,
through the endpoint.
"""
