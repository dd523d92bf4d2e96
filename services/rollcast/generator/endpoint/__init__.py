"""The endpoint for programs that run an agent themselves: chat completions that are recorded as
episodes.
"""
