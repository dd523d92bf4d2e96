"""Checks of the tasks before a start: data, verifiers, environments, and what the tokenizer makes
of the prompts.
"""

from functools import partial

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.own_functions import check_file, is_function
from rollcast.config.recipe import Recipe
from rollcast.config.tasks import PromptFormat, Tasks
from rollcast.local import cautions
from rollcast.local.checks import Check, raise_all
from rollcast.local.class_environments import check_classes
from rollcast.local.embedding_rows import check_embedding_rows
from rollcast.local.environment_files import check_environment_files
from rollcast.local.environment_trial import try_environments
from rollcast.local.model_name import find_model_files
from rollcast.local.prompt_lengths import check_lengths
from rollcast.runfolder.files import Place
from rollcast.runfolder.rules import find_starting_rules
from rollcast.tasks.grading import Verifiers
from rollcast.tasks.mappings import verifier_names
from rollcast.tasks.near_duplicates import near_duplicates
from rollcast.tasks.prompts import PromptSplit, check_prompts, load
from rollcast.tasks.same_prompts import check_same_prompts
from rollcast.tasks.tokenizer_file import TokenizerFile
from rollcast.tasks.trial import try_verifiers
from rollcast.tasks.verifiers import is_built_in


def check_tasks(tasks: Tasks, recipe: Recipe, model: Model, checkpoints: Place) -> list[str]:
    """Verifiers are found, prompts are read; then the tokenizer reads some, the user's own
    verifiers grade some, and one environment of each is reset.
    """
    loaded: list[PromptSplit] = []

    def read_prompts() -> list[str]:
        start_rules = find_starting_rules(checkpoints)
        loaded.append(load(tasks, start_rules.split))
        check_prompts(loaded[0], recipe.prompts_per_step)
        check_same_prompts(loaded[0], start_rules.prompts)
        return [*cautions.data_warnings(loaded[0]), *near_duplicates(tasks, loaded[0]).in_words()]

    environment_checks = [lambda: check_classes(tasks), lambda: check_environment_files(tasks)]
    warnings = raise_all([*_verifier_checks(tasks), *environment_checks, read_prompts])
    split = loaded[0]
    downstream = [prompt for prompts in split.downstream.values() for prompt in prompts]
    verifier_check = partial(try_verifiers, tasks, [*split.train, *downstream])
    token_check = partial(_check_tokens, recipe, model, tasks.prompt_format, split)
    environment_check = partial(try_environments, tasks, [*split.train, *downstream])
    return [*warnings, *raise_all([token_check, verifier_check, environment_check])]


def _check_tokens(
    recipe: Recipe, model: Model, prompt_format: PromptFormat, split: PromptSplit
) -> list[str]:
    """By the tokenizer that this machine has of the model, if it has one."""
    folder = find_model_files(model.path)
    tokenizer = None if folder is None else TokenizerFile.read(folder, model.path)
    if tokenizer is None:
        return []
    check_embedding_rows(model.path, split, tokenizer)
    return [
        *check_lengths(recipe, model, prompt_format, split, tokenizer),
        *cautions.token_warnings(recipe.max_prompt_tokens, prompt_format, split, tokenizer),
    ]


def _verifier_checks(tasks: Tasks) -> list[Check]:
    verifiers = Verifiers.from_tasks(tasks)
    hidden = [
        UserError(
            f"tasks.verifiers.{number}.name = {verifier.name!r}: a built-in verifier has that "
            "name; choose another"
        )
        for number, verifier in enumerate(tasks.verifiers)
        if is_built_in(verifier.name)
    ]
    return [
        *hidden,
        *(partial(_check_verifier, verifiers, name) for name in sorted(verifier_names(tasks))),
    ]


def _check_verifier(verifiers: Verifiers, name: str) -> None:
    verifier = verifiers.find(name)
    check_file(name if is_function(name) else verifier.source)
