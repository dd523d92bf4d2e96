"""Writes the data set of a folder of tasks: `python -m rollcast.environments.harbor FOLDER`.

One JSON row a task: its instruction as `prompt`, its folder's name as `task`.
"""

import json
import sys
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.environments.harbor.task import read_task, task_folders


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m rollcast.environments.harbor FOLDER > rows.jsonl", file=sys.stderr)
        return UserError.exit_code
    sentences = []
    tasks = []
    try:
        for folder in task_folders(Path(sys.argv[1])):
            try:
                tasks.append(read_task(folder))
            except UserError as error:
                sentences.append(str(error))
    except UserError as error:
        sentences.append(str(error))
    if sentences:
        print("\n".join(sentences), file=sys.stderr)
        return UserError.exit_code
    for task in tasks:
        print(json.dumps({"prompt": task.instruction, "task": task.name}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
