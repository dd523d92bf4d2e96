"""YAML of run files: PyYAML's safe loader, but a key given twice is refused and a date stays text."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.composer import ComposerError

from rollcast.config.errors import UserError

_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _RunFileLoader(yaml.SafeLoader):
    """No setting is a date, but `run: 2024-11-21` is a sound name."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # PyYAML's own declaration
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise ComposerError(None, None, f"{key.value!r} is given twice in one mapping", key.start_mark)
                seen.add(key.value)
        return node


def load_yaml(text: str, source: str) -> Any:
    """What `text` holds. Raises UserError where it is not YAML, naming line and column but no value: it may be a
    secret."""
    try:
        return yaml.load(text, _RunFileLoader)  # noqa: S506  # a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UserError(f"{source}: not valid YAML ({where}{error.problem or error.context}); mend that line") from None
    except RecursionError:
        raise UserError(f"{source}: nested too deeply; settings need five levels") from None
    except Exception as error:  # PyYAML's constructors raise whatever an explicit tag makes them stumble on
        raise UserError(
            f"{source}: not valid YAML ({' '.join(str(error).split())}); write plain values without tags"
        ) from None
