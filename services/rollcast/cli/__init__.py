"""The `rollcast` command.

One file or folder for each command; nothing heavy is imported before a command needs it.
"""
