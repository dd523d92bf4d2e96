"""The forms in which requests come and answers go: OpenAI's chat completions and responses,
Anthropic's messages.
"""
