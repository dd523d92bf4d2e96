"""Environments in which a model takes several turns: processes next to the generator, and clients
of servers.

The generator knows them by the protocols of `base` alone.
"""
