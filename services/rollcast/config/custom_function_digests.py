"""Digests of the files that a recipe's own parts are in: a run's folder, its export and `recipe
diff` name them.
"""

from pathlib import Path

from rollcast.config.function_loading import file_digest, source_file
from rollcast.config.recipe import Recipe


def with_digests(recipe: Recipe, *, search_folder: Path | None = None) -> Recipe:
    """The recipe with every digest that the run file leaves out.

    `search_folder`: where files are looked for first, such as that of another person's run
    file. None = only in the folder of the command, as a run does.
    """
    updates = {}
    for setting, custom_function in recipe.custom_functions.items():
        if "digest" not in custom_function.model_fields_set:
            name = setting.removeprefix("recipe.")
            digest = (
                None
                if search_folder is None
                else file_digest(_seen_from(search_folder, custom_function.function))
            )
            updates[name] = custom_function.model_copy(
                update={"digest": digest or file_digest(custom_function.function)}
            )
    return recipe.model_copy(update=updates)


def unread(recipe: Recipe) -> dict[str, str]:
    """The function of each part, by its setting, whose file `with_digests` did not find."""
    return {
        setting: custom_function.function
        for setting, custom_function in recipe.custom_functions.items()
        if custom_function.digest is None and source_file(custom_function.function) is not None
    }


def _seen_from(folder: Path, function: str) -> str:
    """The function for a process that works elsewhere, its file being relative to `folder`."""
    module_path, _, name = function.rpartition(":")
    return f"{folder / Path(module_path).expanduser()}:{name}"
