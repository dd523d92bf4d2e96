"""How many generators a run needs, and who is told so."""
