"""Mistakes of a first hour: the user's files and the command. docs/reference/mistakes.md has the
messages.
"""

from __future__ import annotations

import functools
import json
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

CHECK = ("config", "check", "run.yaml")
UP = ("up", "--config", "run.yaml")
TAKEN = "TAKEN"
"""A port that somebody listens on."""
KEPT = "KEPT"
"""A port that another run will listen on."""
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "mistakes.md"
ROW = re.compile(r"^\| (?P<title>[^|]+) \| `` (?P<said>.+) `` \|$", re.MULTILINE)
FIRST_MINUTES = "The first minutes"
"""The table whose mistakes tests/system/test_first_hour.py makes, since they take a run."""
ROWS = [{"prompt": f"{n} + 1?", "answer": str(n + 1)} for n in range(1, 9)]
CAUSAL = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "max_position_embeddings": 512,
}
SOUND: dict[str, Any] = {
    "run": "mine",
    "model": {"path": "model"},
    "tasks": {
        "dataset": {"kind": "jsonl", "name": "rows", "path": "rows.jsonl"},
        "evaluation": {"num_prompts": 2, "every_steps": 2},
        "grading": {"deadline_seconds": 20},
    },
    "recipe": {"prompts_per_step": 2},
    "budget": {"steps": 10},
}


@dataclass(frozen=True)
class Mistake:
    change: Mapping[str, Any] = field(default_factory=dict)
    """Of a run file that is right."""
    files: Mapping[str, str | bytes | int | None] = field(default_factory=dict)
    """Beside it, in place of those that are right; None = it is not there, a number = so many empty
    bytes."""
    command: tuple[str, ...] = CHECK
    environment: Mapping[str, str] = field(default_factory=dict)
    lacks: str | None = None
    """A package that is not installed."""


def told_by_the_page() -> dict[tuple[str, str], str]:
    """Table and what was done -> what the page says is told."""
    return {
        (section.partition("\n")[0], match["title"]): match["said"]
        for section in PAGE.read_text().split("\n## ")
        for match in ROW.finditer(section)
    }


def is_as_told(said: str, wanted: str) -> bool:
    """Whether the words are the page's, where three dots stand for anything."""
    return re.fullmatch(".*".join(map(re.escape, wanted.split("..."))), said) is not None


@functools.cache
def byte_tokenizer(*words: str) -> str:
    """A tokenizer.json that spells everything: one token for each byte, and one for each of
    `words`.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(list(words))
    return str(tokenizer.to_str())


def prepared(folder: Path, mistake: Mistake, taken_port: int = 0, kept_port: int = 0) -> None:
    """What the user's folder holds.

    `taken_port`, `kept_port`: what stands for TAKEN and KEPT in the run file.
    """
    files: dict[str, str | bytes | int | None] = {
        "rows.jsonl": lines(*ROWS),
        "model/config.json": json.dumps(CAUSAL),
        "model/model.safetensors": b"\0" * 64,
        "model/tokenizer.json": byte_tokenizer(),
        "run.yaml": yaml.safe_dump(merged(SOUND, mistake.change))
        .replace(TAKEN, str(taken_port))
        .replace(KEPT, str(kept_port)),
    }
    for name, content in {**files, **mistake.files}.items():
        if content is None:
            continue
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, int):
            with file.open("wb") as sparse:
                sparse.truncate(content)
        else:
            file.write_bytes(content if isinstance(content, bytes) else content.encode())


def merged(settings: Any, change: Any) -> Any:
    if not (isinstance(settings, Mapping) and isinstance(change, Mapping)):
        return change
    return {**settings, **{key: merged(settings.get(key), value) for key, value in change.items()}}


def lines(*rows: Any) -> str:
    return "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)


def data(*rows: Any, **change: Any) -> Mistake:
    """These rows behind sound ones."""
    return Mistake({"tasks": {"dataset": change}}, {"rows.jsonl": lines(*ROWS, *rows)})


def chat(*messages: tuple[str, Any]) -> Mistake:
    return data(
        {
            "prompt": [{"role": role, "content": content} for role, content in messages],
            "answer": "1",
        }
    )


def reward(body: str, *, name: str = "grade", before: str = "", **change: Any) -> Mistake:
    """A function in reward.py."""
    source = f"{before}def grade(completion, row):\n    {body}\n"
    tasks = {"dataset": {"verifier": f"./reward.py:{name}"}, **change}
    return Mistake({"tasks": tasks}, {"reward.py": source})


def rewards_of(arguments: str, returned: str) -> Mistake:
    """A function with the arguments of another library."""
    return reward(
        "pass", before=f"def theirs({arguments}):\n    return {returned}\n", name="theirs"
    )


def declared(**settings: Any) -> Mistake:
    """A verifier of tasks.verifiers, which the data set names."""
    settings = {"name": "mine", **settings}
    return Mistake({"tasks": {"dataset": {"verifier": settings["name"]}, "verifiers": [settings]}})


def model(**files: str | bytes | None) -> Mistake:
    return Mistake(
        files={
            f"model/{name.replace('_json', '.json')}": content for name, content in files.items()
        }
    )


def said(*command: str, **files: str) -> Mistake:
    return Mistake(
        files={name.replace("_", "."): content for name, content in files.items()}, command=command
    )


MISTAKES: dict[str, dict[str, Mistake]] = {
    "Data": {
        "The file is not there": data(path="row.jsonl"),
        "A line is no JSON": data('{"prompt": "2 + 2?"\n'),
        "A line holds a list": data(["2 + 2?", "4"]),
        "The prompt's field has another name": data({"question": "2 + 2?", "answer": "4"}),
        "One prompt has two answers": data({"prompt": "3 + 1?", "answer": "5"}),
        "An answer is empty": data({"prompt": "2 + 2?", "answer": ""}),
        "A chat ends with the answer": chat(("user", "2 + 2?"), ("assistant", "4")),
        "A message is by a tool": chat(("tool", "4"), ("user", "2 + 2?")),
        "A message holds a picture": chat(("user", [{"type": "image_url", "image_url": "x"}])),
        "A chat without a message": chat(),
        "A prompt is a mapping": data({"prompt": {"text": "2 + 2?"}, "answer": "4"}),
        "Half of a surrogate pair": data({"prompt": "\ud800", "answer": "4"}),
        "More prompts held out than there are": Mistake(
            {"tasks": {"evaluation": {"num_prompts": 8}}}
        ),
        "A step takes more prompts than there are": Mistake({"recipe": {"prompts_per_step": 9}}),
        "A template without a place": data(template="Solve it."),
        "JSON lines called Parquet": data(kind="parquet"),
        "A gzip file that was cut off": Mistake(
            {"tasks": {"dataset": {"path": "rows.jsonl.gz"}}},
            {"rows.jsonl.gz": b"\x1f\x8b\x08\0\0\0\0\0"},
        ),
        "An empty file": Mistake(files={"rows.jsonl": ""}),
        "A file of blank lines": Mistake(files={"rows.jsonl": "\n \n\n"}),
        "Every prompt is longer than allowed": Mistake({"recipe": {"max_prompt_tokens": 5}}),
        "Completions leave no room for any prompt": Mistake(
            {"recipe": {"max_completion_tokens": 508}}
        ),
    },
    "Verifiers": {
        "A name that nothing has": data(verifier="mathh"),
        "The file is not there": data(verifier="./rewards.py:grade"),
        "The file has no such function": reward("return 1.0", name="reward"),
        "A syntax error": reward("return 1.0", before="x = = 1\n"),
        "An import of what is not installed": reward(
            "return 1.0", before="import nowhere_to_be_found\n"
        ),
        "It returns nothing": reward("pass"),
        "It returns -1 for a wrong answer": reward(
            "return 1.0 if completion == row['answer'] else -1"
        ),
        "It raises": reward("return float(completion.split()[0] == row['answer'])"),
        "It asks for a field that rows do not have": reward(
            "return float(completion == row['solution'])"
        ),
        "It takes other arguments": reward(
            "pass", before="def old(answer):\n    return 1.0\n", name="old"
        ),
        "TRL's arguments, and a field that rows do not have": rewards_of(
            "completions, solution, **kwargs", "[1.0]"
        ),
        "TRL's arguments, and no list": rewards_of("prompts, completions", "1.0"),
        "verl's arguments, and a field that rows do not have": rewards_of(
            "data_source, solution_str", "1.0"
        ),
        "verl's arguments, and no score": rewards_of(
            "solution_str, ground_truth", "{'reward': 1.0}"
        ),
        "It opens a file in the sandbox": reward(
            "return float(completion in open('rows.jsonl').read())"
        ),
        "It starts a thread in the sandbox": reward(
            "threading.Thread(target=print).start(); return 1.0", before="import threading\n"
        ),
        "It never returns": reward("while True: pass", grading={"deadline_seconds": 0.5}),
        "It ends its process": reward("os._exit(3)", before="import os\n"),
        "It has the name of a built-in one": declared(
            name="math", kind="function", code="./reward.py:grade"
        ),
        "A reward service that is not there": declared(
            kind="http", url="http://127.0.0.1:9", tries=1
        ),
        "A judge whose token is not set": declared(
            kind="llm-judge",
            url="http://127.0.0.1:9/v1",
            model="judge",
            token_variable="JUDGE_TOKEN",
            tries=1,
        ),
    },
    "Models": {
        "The folder is not there": Mistake({"model": {"path": "./modle"}}),
        "The folder has no config.json": model(config_json=None),
        "Its config.json is no JSON": model(config_json="{"),
        "A folder's name is misspelt": Mistake({"model": {"path": "modle"}}),
        "A folder in a folder is misspelt": Mistake(
            {"model": {"path": "models/arithmtic"}},
            {"models/arithmetic/config.json": json.dumps(CAUSAL)},
        ),
        "A name on the hub without its owner": Mistake({"model": {"path": "Qwen3-0.6B"}}),
        "Its tokenizer.json is not a tokenizer": model(tokenizer_json="{}"),
        "A length that the model does not know": Mistake({"model": {"max_length": 4_096}}),
        "A renderer that does not exist": Mistake({"model": {"renderer": "qwen-3"}}),
        "It has no weights": Mistake(files={"model/model.safetensors": None}),
        "A BERT": model(
            config_json=json.dumps({"architectures": ["BertForMaskedLM"], "model_type": "bert"})
        ),
        "A T5": model(
            config_json=json.dumps(
                {"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}
            )
        ),
        "Heads that vLLM has no kernel for": Mistake(
            files={"model/config.json": json.dumps(CAUSAL | {"head_dim": 16})},
            environment={"CUDA_VISIBLE_DEVICES": ""},
        ),
    },
    "Names and forms from elsewhere": {
        "A learning rate of the recipe": Mistake({"recipe": {"lr": 1e-6}}),
        "A batch in samples": Mistake({"recipe": {"batch_size": 64}}),
        "A group size": Mistake({"recipe": {"group_size": 8}}),
        "TRL's number of generations": Mistake({"num_generations": 8}),
        "TRL's accumulation of gradients": Mistake({"gradient_accumulation_steps": 4}),
        "A KL coefficient": Mistake({"beta": 0.04}),
        "Epochs": Mistake({"num_train_epochs": 3}),
        "verl's groups": Mistake({"actor_rollout_ref": {"rollout": {"n": 5}}}),
        "LoRA": Mistake({"model": {"lora": {"r": 16}}}),
        "Several turns": Mistake({"tasks": {"multi_turn": True}}),
        "Another way to sample": Mistake({"recipe": {"top_p": 0.95}}),
        "A file of evaluation prompts": Mistake({"tasks": {"evaluation": {"path": "test.jsonl"}}}),
        "A loss by its name": Mistake({"recipe": {"loss": "dapo"}}),
        "No length control, by its name": Mistake({"recipe": {"length_control": "none"}}),
        "A schedule without its kind": Mistake({"recipe": {"schedule": {"max_staleness": 0}}}),
        "A number for the penalty": Mistake({"recipe": {"kl": 0.01}}),
        "A model by its path": Mistake(
            files={"run.yaml": "run: mine\nmodel: ./model\nbudget: {steps: 10}\n"}
        ),
        "A logger by its name": Mistake({"log": "tensorboard"}),
        "A loss by its function": Mistake({"recipe": {"loss": "./f.py:g"}}),
        "LoRA switched on": Mistake({"model": {"lora": True}}),
        "Lengths beyond a short model": Mistake(
            {"recipe": {"max_prompt_tokens": 200, "max_completion_tokens": 400}}
        ),
        "A loss that the default schedule does not suit": Mistake(
            {"recipe": {"loss": {"kind": "reinforce"}}}
        ),
    },
    "Commands": {
        "No budget": Mistake({"budget": {"steps": None}}),
        "A run file that is not there": said("config", "check", "my-run.yml"),
        "A run file with a tab": Mistake(files={"run.yaml": "run: mine\nmodel:\n\tpath: model\n"}),
        "init where a run file is": said(
            "init", "run.yaml", "--model", "model", "--data", "rows.jsonl"
        ),
        "init without a model, and no terminal": said("init", "new.yaml", "--data", "rows.jsonl"),
        "init with a budget that is none": said(
            "init",
            "new.yaml",
            "--model",
            "model",
            "--data",
            "rows.jsonl",
            "--verifier",
            "exact",
            "--budget",
            "soon",
        ),
        "init with rows whose prompt has an unusual name": said(
            "init",
            "new.yaml",
            "--model",
            "model",
            "--data",
            "odd.jsonl",
            odd_jsonl='{"q": "2 + 2?", "a": "4"}\n',
        ),
        "try with a run file that is wrong": Mistake(
            {"budget": {"step": 1}}, command=("try", "--config", "run.yaml")
        ),
        "fit of a file that is not there": said("fit", "curve.csv"),
        "plan budget with nothing to plan": said("plan", "budget", "curve.csv"),
        "An option given twice": said(
            "plan", "budget", "curve.csv", "--budget", "1", "--budget", "2"
        ),
    },
    "The machine": {
        "The run's folder is a file": Mistake({"folder": "rows.jsonl"}),
        "A core that the machine does not have": Mistake({"generator": {"cpu": 100_000}}),
        "A Python that is not there": Mistake(
            {
                "tasks": {
                    "environments": [
                        {
                            "kind": "verifiers",
                            "name": "rooms",
                            "taskset": "rooms",
                            "interpreter": "env/bin/python",
                        }
                    ]
                }
            }
        ),
        "A certificate that is not there": Mistake(
            {"http": {"tls": {"certificate": "c.pem", "private_key": "k.pem"}}}
        ),
        "No C++ compiler, and no GPU": Mistake(environment={"PATH": "/nowhere", "CXX": ""}),
        "Two services on one port": Mistake(
            {"rpc": {"port": 7_001}, "forecaster": {"http_port": 7_001}}
        ),
        "A generator on the trainer's port": Mistake(
            {
                "trainer": {"http_port": 7_002},
                "generator": {"http_port": 7_001},
                "local": {"generators": 2},
            }
        ),
        "Redis on the port of another service": Mistake(
            {"redis": {"host": "localhost"}, "rpc": {"port": 6_379}}
        ),
        "More generators than there are ports": Mistake(
            {"generator": {"http_port": 65_535}, "local": {"generators": 2}}
        ),
        "A port that somebody has": Mistake({"forecaster": {"http_port": TAKEN}}, command=UP),
        "A page's port that another run has taken, though nothing listens there yet": Mistake(
            {"forecaster": {"http_port": KEPT}}, command=UP
        ),
        "A disk without room for the checkpoints": Mistake(
            files={"model/model.safetensors": 1 << 42}
        ),
        "A disk without room for the recorded steps": Mistake(
            {"record": {"on": ["failed"], "max_bytes": 1 << 52}}
        ),
        "A logger whose package is not installed": Mistake(
            {"log": [{"kind": "wandb"}]}, lacks="wandb"
        ),
    },
}
OF_REWARD_FUNCTIONS = (
    "A syntax error",
    "An import of what is not installed",
    "It returns -1 for a wrong answer",
    "It raises",
    "It asks for a field that rows do not have",
    "It takes other arguments",
    "TRL's arguments, and a field that rows do not have",
    "TRL's arguments, and no list",
    "verl's arguments, and a field that rows do not have",
    "verl's arguments, and no score",
    "It opens a file in the sandbox",
    "It starts a thread in the sandbox",
    "It never returns",
    "It ends its process",
)
"""Of the group Verifiers, those of which each starts a sandbox; "It returns nothing" does so too,
with the others."""


def spelling(*words: str) -> Mapping[str, str]:
    """The model's tokenizer knows these words as tokens, and letters of plain text alone."""
    letters = {
        letter: number
        for number, letter in enumerate(string.digits + string.ascii_letters + " +?:.,;'\n")
    }
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.add_tokens(list(words))
    return {"model/tokenizer.json": str(tokenizer.to_str())}


THINK = {"tasks": {"prompt_format": {"layout": "think"}}, "recipe": {"max_prompt_tokens": 400}}
"""So long that nobody has to count the tokens of the text around a prompt."""
CAUTIONS: dict[str, Mistake] = {
    "Rows that are there twice": data(ROWS[0], ROWS[1]),
    "Some prompts are longer than allowed": Mistake(
        {"recipe": {"max_prompt_tokens": 10}},
        {"rows.jsonl": lines(*ROWS, {"prompt": "9 + 1? " * 3, "answer": "10"})},
    ),
    "Letters that the tokenizer does not know": Mistake(
        files={"rows.jsonl": lines(*ROWS, {"prompt": "3² = é?", "answer": "9"}), **spelling()}
    ),
    "A verifier that says 1 to everything": reward("return 1.0"),
    "A verifier that says 0 to everything": reward("return float(completion == row['prompt'])"),
    "Fewer steps than between two evaluations": Mistake(
        {"tasks": {"evaluation": {"every_steps": 100}}}
    ),
    "Too few evaluations for a forecast": Mistake({"tasks": {"evaluation": {"every_steps": 4}}}),
    "More processes than cores": Mistake({"local": {"generators": 60}}),
    "Layout think, and no token for it": Mistake(THINK),
    "Layout think, and no letters for it": Mistake(THINK, spelling()),
    "A model that is not where others are": Mistake(
        {"model": {"path": "models/arithmetic-2"}},
        {"models/arithmetic/config.json": json.dumps(CAUSAL)},
    ),
}
"""What `config check` warns of and `up` says as well: the run may be started."""
