"""YAML of run files: PyYAML's safe loader, but a key given twice is refused, and a date and the key
`on` stay text.
"""

from itertools import chain
from typing import Any

import yaml
from yaml.composer import ComposerError

from rollcast.config.errors import UserError

MAX_VALUES = 100_000
"""Values of a file with its aliases written out: a few lines of aliases can spell more than memory
holds."""
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_BOOLEAN = "tag:yaml.org,2002:bool"
_TEXT = "tag:yaml.org,2002:str"


class _RunFileLoader(yaml.SafeLoader):
    """No setting is a date, but `run: 2024-11-21` is a sound name."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # PyYAML's own declaration
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        # The parser keeps a state or two for each level; PyYAML takes quadratic time for levels
        if len(self.states) > 60:
            raise RecursionError
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen_keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen_keys:
                    raise ComposerError(
                        None, None, f"{key.value!r} is given twice in one mapping", key.start_mark
                    )
                seen_keys.add(key.value)
                if key.tag == _BOOLEAN:  # `on` is a setting of `record`
                    key.tag = _TEXT
        return node

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _count_values(node, {}) > MAX_VALUES:
            raise ValueError(
                f"holds more than {MAX_VALUES:,} values, its aliases (*name) written out"
            )
        return node

    def construct_number(self, node: Any) -> Any:
        # Converting a number takes quadratic time
        if len(node.value) > 1_000:
            raise ValueError(f"a number has {len(node.value):,} digits")
        return (
            self.construct_yaml_int(node)
            if node.tag.endswith(":int")
            else self.construct_yaml_float(node)
        )


_RunFileLoader.add_constructor("tag:yaml.org,2002:int", _RunFileLoader.construct_number)
_RunFileLoader.add_constructor("tag:yaml.org,2002:float", _RunFileLoader.construct_number)


def _count_values(node: yaml.Node, counts: dict[int, int]) -> int:
    """Values that the node holds, with each alias counted as a copy of its anchor."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in counts:
        counts[id(node)] = MAX_VALUES + 1  # what an alias inside it that names itself would come to
        parts = (
            chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
        )
        counts[id(node)] = 1 + sum(_count_values(child, counts) for child in parts)
    return counts[id(node)]


def load_yaml(text: str, source: str) -> Any:
    """The value of `text`.

    Raises UserError if it is not YAML: names line and column, no value, which may be secret.
    """
    try:
        return yaml.load(text, _RunFileLoader)  # noqa: S506  # a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = error.problem or error.context
        raise UserError(f"{source}: not valid YAML ({where}{problem}); correct that line") from None
    except RecursionError:
        raise UserError(f"{source}: nested too deeply; settings need five levels") from None
    except (
        Exception
    ) as error:  # PyYAML's constructors raise whatever an explicit tag makes them stumble on
        raise UserError(
            f"{source}: not valid YAML ({' '.join(str(error).split())}); write plain values "
            "without tags"
        ) from None
