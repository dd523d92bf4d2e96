"""`rollcast version`"""

from __future__ import annotations

import typer

from rollcast import __version__


def version() -> None:
    """Print the version.

    \b
    rollcast version
    """
    typer.echo(__version__)
