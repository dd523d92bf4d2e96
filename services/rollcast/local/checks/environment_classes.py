"""Environments that are classes of the user's own, looked at without running their code."""

import ast
from collections.abc import Sequence
from pathlib import Path

from rollcast.config.datasets import RowsDataset
from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.config.errors import UserError
from rollcast.config.function_loading import check_file, is_function
from rollcast.config.rewarding import environment_rewards
from rollcast.config.tasks import Tasks
from rollcast.local.checks.check import Start

SETTINGS = ("tasks",)
REWARD = "get_reward"


def check_classes(tasks: Tasks) -> None:
    """Raises UserError for a file or class that is not there, and for episodes that nothing
    rewards.

    Classes of installed packages are not looked at: only the generator imports them.
    """
    for number, environment in enumerate(tasks.environments):
        if not isinstance(environment, ClassEnvironment) or not is_function(environment.code):
            continue
        check_file(environment.code, f"tasks.environments.{number}.code")
        module_path, _, name = environment.code.rpartition(":")
        if not module_path.endswith(".py"):
            continue
        setting = f"tasks.environments.{number}.code = {environment.code}"
        body = _statements(Path(module_path).expanduser(), setting)
        classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
        if name not in classes and name in _names_in(body):
            continue  # made or imported there
        if name not in classes:
            there = f"it has {', '.join(list(classes)[:10])}" if classes else "there are none in it"
            raise UserError(
                f"{setting}: the file has no class {name!r} ({there}); name one, or add it"
            )
        if may_have(classes, name, REWARD):
            continue
        for dataset in _rewarded_by(environment, tasks):
            raise UserError(
                f"{setting}: the class has no {REWARD}, and data set {dataset.name!r} leaves the "
                "reward to it, so that "
                f"nothing rewards its episodes; add {REWARD}, or name a verifier there"
            )


def _rewarded_by(environment: ClassEnvironment, tasks: Tasks) -> list[RowsDataset]:
    """The data sets that are answered in the environment and rewarded by it."""
    datasets = [
        *(mixture_part.dataset for mixture_part in tasks.parts),
        *(item.dataset for item in tasks.downstream),
    ]
    rows = [dataset for dataset in datasets if isinstance(dataset, RowsDataset)]
    return [
        rows_dataset
        for rows_dataset in rows
        if rows_dataset.environment == environment.name
        and environment_rewards(environment, rows_dataset)
    ]


def _statements(file: Path, setting: str) -> list[ast.stmt]:
    try:
        return ast.parse(file.read_bytes()).body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UserError(f"{setting}: the file is no Python ({error}); correct it") from error


def may_have(classes: dict[str, ast.ClassDef], name: str, method: str) -> bool:
    """Whether the class, or a base class, has the method; a base class that is not
    in the file may.
    """
    visited_names: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in visited_names:
            continue
        visited_names.add(current)
        class_node = classes.get(current)
        if class_node is None:
            return True
        if method in _names_in(class_node.body) or class_node.decorator_list or class_node.keywords:
            return True
        bases = [base.id if isinstance(base, ast.Name) else "" for base in class_node.bases]
        waiting += [base for base in bases if base != "object"]
    return False


def _names_in(body: Sequence[ast.stmt]) -> set[str]:
    """Names that the statements define, in blocks inside them too."""
    names: set[str] = set()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.alias):
                names.add(node.asname or node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return names


def check(start: Start) -> None:
    check_classes(start.config.tasks)
