"""Tasksets of `verifiers`, unchanged: in a virtual environment of their own, through the
generator's endpoint.
"""
