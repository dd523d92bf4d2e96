"""An option that takes one value is given once: the second would silently replace the first."""

from collections import Counter
from typing import Any

from typer.core import TyperCommand

from rollcast.config.errors import UserError


class OnceCommand(TyperCommand):
    """A command that refuses a second value of an option that is not repeatable."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises UserError."""
        if not ctx.resilient_parsing and "--help" not in args:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            options: Counter[Any] = Counter(order)
            for parameter, count in options.items():
                single = parameter.param_type_name == "option" and not (
                    parameter.multiple or parameter.is_flag
                )
                if count > 1 and single:
                    raise UserError(f"{parameter.opts[0]}: is given {count} times; give it once")
        return super().parse_args(ctx, args)
