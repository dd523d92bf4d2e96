"""Reading a run file: its schema (`schema`) and the rules across settings (`rules`), every mistake
reported together.
"""

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from rollcast.config.errors import UserError
from rollcast.config.other_names import without_ignored, without_removed
from rollcast.config.resolved import differences
from rollcast.config.rules import broken_rules
from rollcast.config.schema import RunConfig
from rollcast.config.sentences import Wrong, find_mistakes, num_described, type_in_words, without
from rollcast.config.yaml_loader import load_yaml

MAX_FILE_BYTES = 1 << 20
FillIn = Callable[[RunConfig], RunConfig]
"""Gives what a run file leaves out."""
__all__ = [
    "RunConfig",
    "WrongSettingsError",
    "load_run_config",
    "load_settings",
    "parse_run_config",
]

MAX_NAMED_MISTAKES = 20
"""Mistakes that are named; of further ones only the number is given."""
SECRET_VARIABLES = {
    "ROLLCAST_REDIS_PASSWORD": ("redis", "password"),
    "ROLLCAST_RPC_TOKEN": ("rpc", "token"),
    "ROLLCAST_GRADER_TOKEN": ("grader", "token"),
    "ROLLCAST_HTTP_TOKEN": ("http", "token"),
    "ROLLCAST_PUSH_TOKEN": ("forecaster", "push_token"),
}
"""Environment variable -> group and setting of a run file."""
REDIS_USERNAME = "ROLLCAST_REDIS_USERNAME"
"""Environment variable of redis.username: each role of a run has its own."""


class WrongSettingsError(UserError):
    """Every mistake in a run file's settings; `config` holds the others, None if they cannot be
    read. Of a file with many the first `MAX_NAMED_MISTAKES` are named, and the number of the
    others.
    """

    def __init__(
        self, source: str, mistakes: list[Wrong], config: RunConfig | None, num_more: int = 0
    ) -> None:
        named = mistakes[:MAX_NAMED_MISTAKES]
        sentences = [mistake.sentence for mistake in named]
        if num_more := num_more + len(mistakes) - len(named):
            sentences.append(f"has {num_more:,} more mistakes; fix these first")
        super().__init__("\n".join(f"{source}: {sentence}" for sentence in sentences))
        self.mistakes = named
        self.config = config


def load_run_config(
    path: Path,
    *,
    to_start: bool = False,
    filled_in: FillIn | None = None,
    dropped: list[tuple[str, object]] | None = None,
) -> RunConfig:
    """Read a run file (YAML or JSON). `to_start`: the whole run will be started from it, so that it
    must also end. `filled_in`: adds the settings that the file leaves out, before rules across
    settings are asked. `dropped`: takes settings of earlier versions with their values, for the
    file of a run that has started; None = they are refused.

    Raises UserError: one sentence for each wrong field, with its value and the allowed ones.
    """
    data = load_settings(path, "run file")
    if dropped is not None:
        data = without_removed(data, dropped)
    return parse_run_config(data, source=str(path), to_start=to_start, filled_in=filled_in)


def load_settings(path: Path, kind: str) -> dict[str, Any]:
    """The mapping that a YAML or JSON file of this `kind` holds.

    Raises UserError if it cannot be read, or holds another value.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(
                f"{kind} {path}: larger than {MAX_FILE_BYTES} bytes; it should hold settings only"
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{kind} {path}: cannot be read ({error.strerror}); give the path of a YAML file"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{kind} {path}: byte {error.start} is not UTF-8; save it as UTF-8 text"
        ) from error
    data = load_yaml(text, f"{kind} {path}")
    if not isinstance(data, dict):
        raise UserError(
            f"{kind} {path}: holds {type_in_words(data)}, needs a mapping such as `run: demo`"
        )
    return data


def parse_run_config(
    data: dict[str, Any], *, source: str, to_start: bool = False, filled_in: FillIn | None = None
) -> RunConfig:
    """Check settings that were already read; secrets in the environment win over the file's.

    Raises UserError: one sentence for each mistake, all of them together.
    """
    config, mistakes, num_more = _validate_settings(
        without_ignored(data), filled_in, to_start=to_start
    )
    if mistakes:
        raise WrongSettingsError(source, mistakes, config, num_more)
    assert config is not None
    variables = {**SECRET_VARIABLES, REDIS_USERNAME: ("redis", "username")}
    for variable, (group, setting) in variables.items():
        if text := os.environ.get(variable):
            value = text if variable == REDIS_USERNAME else SecretStr(text)
            changed = getattr(config, group).model_copy(update={setting: value})
            config = config.model_copy(update={group: changed})
    return config


def _validate_settings(
    data: dict[str, Any], filled_in: FillIn | None, *, to_start: bool
) -> tuple[RunConfig | None, list[Wrong], int]:
    """The settings, every mistake in them, and the number of further ones if there are too many.
    Rules see the default in place of a setting that is wrong by itself."""
    mistakes: list[Wrong] = []
    mended = data
    # A mistake may hide others below it, which show once it is out of the way
    for _ in range(4):
        try:
            config = RunConfig.model_validate(mended)
        except ValidationError as error:
            # Missing settings come last: the one that a misspelt name was meant for is not missing
            # as well.
            errors = sorted(
                error.errors(include_url=False), key=lambda item: item["type"] == "missing"
            )
            if num_more := _describe(errors, mended, mistakes):
                return None, mistakes, num_more
            mended = without(mended, errors)
            continue
        filled_fields: set[str] = set()
        if filled_in is not None:
            unfilled_config = config
            config = filled_in(config)
            filled_fields = {
                difference.field for difference in differences(unfilled_config, config)
            }
        all_broken = broken_rules(config, to_start=to_start)
        broken = [wrong for wrong in all_broken if not any(wrong.touches(m) for m in mistakes)]
        return (
            config,
            mistakes + [wrong.blaming_what_is_written(data, filled_fields) for wrong in broken],
            0,
        )
    return None, mistakes, 0


def _describe(errors: list[ErrorDetails], data: dict[str, Any], mistakes: list[Wrong]) -> int:
    """Add to `mistakes` what pydantic found in `data` and they do not report yet; return how many
    were left out.

    To find what a name was meant for takes milliseconds, so it is not looked for if it is not
    printed.
    """
    num_more = 0
    for item in errors:
        new_mistakes = list(
            islice(find_mistakes(item, data, RunConfig), MAX_NAMED_MISTAKES - len(mistakes))
        )
        num_more += max(0, num_described(item, RunConfig) - len(new_mistakes))
        mistakes += [
            wrong
            for wrong in new_mistakes
            if not any(wrong.repeats(earlier) for earlier in mistakes)
        ]
    return num_more
