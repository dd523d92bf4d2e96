"""Policy losses, one module for each formula.

`make` of a module returns the loss of its settings, which are in the module of the same name in
`rollcast.config.losses`.
"""
