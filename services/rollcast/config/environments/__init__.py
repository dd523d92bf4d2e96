"""Settings of the environments in which a model takes several turns, one module for each kind.

A module that is put into this folder is found by itself: its subclasses of `EnvironmentSettings`
become kinds of `tasks.environments`.
"""
