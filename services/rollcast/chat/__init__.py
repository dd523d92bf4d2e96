"""Chats as tokens and back, exactly: what the policy sampled is never decoded
and tokenised again.
"""
