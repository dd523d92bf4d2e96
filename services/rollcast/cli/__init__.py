"""The `rollcast` command. One file for each command; nothing heavy is imported before a command needs it."""
