"""Checks before a start: all are made, and their refusals become one error."""

from collections.abc import Callable, Sequence

from rollcast.config.errors import PassingError, UserError

Check = Callable[[], Sequence[str] | None] | UserError
"""Returns cautions, or raises UserError; a mistake that is known already is one itself."""


def raise_all(checks: Sequence[Check]) -> list[str]:
    """Make every check; returns all cautions.

    Refusals become one error, which may pass if each of them may.
    """
    errors: list[UserError] = []
    warnings: list[str] = []
    for check in checks:
        try:
            if isinstance(check, UserError):
                raise check
            warnings += check() or ()
        except UserError as error:
            errors.append(error)
    if errors:
        kind = (
            PassingError if all(isinstance(error, PassingError) for error in errors) else UserError
        )
        raise kind("\n".join(map(str, errors))) from errors[0]
    return warnings
