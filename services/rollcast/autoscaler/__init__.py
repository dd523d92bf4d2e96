"""Decides how many generators a run needs, and passes the number on."""
