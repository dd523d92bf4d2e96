"""Whether `model.path` is taken for a name on the hub although a folder was meant."""

from collections.abc import Iterable
from pathlib import Path

from rollcast.local.checks.check import Finding, Start, warnings
from rollcast.local.demo.base_model import PLACEHOLDER
from rollcast.local.model_name import find_model_files, is_on_the_hub, similar_folder

SETTINGS = ("model.path",)


def check(start: Start) -> Iterable[Finding]:
    path = start.config.model.path
    if path == PLACEHOLDER and not Path(path).exists():
        return warnings(
            [
                f"model.path = {path}: is the demo's model, which `rollcast demo` trains; "
                "`rollcast up` needs its folder"
            ]
        )
    owner = path.partition("/")[0]
    try:
        looks_like_a_folder = is_on_the_hub(path) and Path(owner).is_dir()
    except OSError:  # whoever reads the model says so
        return ()
    if not looks_like_a_folder or find_model_files(path) is not None:
        return ()
    close_folder = similar_folder(path)
    meant = f"did you mean {close_folder}?" if close_folder else f"./{path} would be a folder"
    return warnings(
        [f"model.path = {path}: is not in the folder {owner}, so the hub is asked for it; {meant}"]
    )
