"""Protobuf messages of both wires, generated from proto/ and committed, and the one word they
share.
"""
