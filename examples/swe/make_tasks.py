"""Write ten small repositories as tasks in Harbor's format, each with a mistake and a failing test:
`python make_tasks.py [FOLDER]` (default: tasks).
"""

import sys
from pathlib import Path
from textwrap import dedent

TASK_FILE = """\
schema_version = "1.1"
artifacts = ["/repo"]

[task]
name = "rollcast/{name}"

[verifier]
timeout_sec = 120.0
environment_mode = "separate"

[agent]
timeout_sec = 1200.0

[environment]
cpus = 1
memory_mb = 1024
storage_mb = 512
workdir = "/repo"
"""
DOCKERFILE = """\
FROM localhost/rollcast-swe:1
COPY repo /repo
WORKDIR /repo
RUN git init -q && git add . && \\
    git -c user.name=author -c user.email=author@example.com commit -qm first
"""
TESTS = """\
#!/bin/sh
chmod 700 /tests
cd /
if python3 -I /tests/test.py; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
"""
CHECK = '''\
"""Each expression in a process of its own, which may neither read this file nor end this one."""

import json
import subprocess
import sys

FILE = {file!r}
EXPECTED = {expected!r}
PROGRAM = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("repaired", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(json.dumps(eval(sys.argv[2], vars(module))))
"""

for expression, value in EXPECTED.items():
    child = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, "/repo/" + FILE, expression],
        capture_output=True, timeout=10, user=65534, group=65534, extra_groups=(),
    )
    try:
        given = json.loads(child.stdout)
    except ValueError:
        given = child.stderr.decode(errors="replace")[-300:]
    if given != value:
        sys.exit(f"{{expression}} is {{given!r}}, not {{value!r}}")
'''
REPOSITORIES = {
    "calendar": (
        "`is_leap_year(1900)` returns True. Years that are divisible by 100 are leap years only"
        " if they are divisible by 400.",
        """
        def is_leap_year(year):
            return year % 4 == 0
        """,
        {
            "[is_leap_year(year) for year in (1900, 2000, 2023, 2024, 2100)]": [
                False,
                True,
                False,
                True,
                False,
            ]
        },
        "calendar_days.py",
    ),
    "chunks": (
        "`chunks([1, 2, 3], 2)` loses the last item: it returns [[1, 2]].",
        """
        def chunks(items, size):
            return [items[i:i + size] for i in range(0, len(items) - size + 1, size)]
        """,
        {"chunks([1, 2, 3], 2)": [[1, 2], [3]], "chunks([1, 2], 2)": [[1, 2]], "chunks([], 2)": []},
        "chunks.py",
    ),
    "median": (
        "`median([4, 1, 3, 2])` returns 3. The median of an even number of values is the mean "
        "of the two in the middle.",
        """
        def median(values):
            ordered = sorted(values)
            return ordered[len(ordered) // 2]
        """,
        {"median([3, 1, 2])": 2, "median([4, 1, 3, 2])": 2.5},
        "statistic.py",
    ),
    "roman": (
        "`to_roman(4)` returns IIII. Four and nine of each place are written by subtraction.",
        """
        VALUES = ((1000, "M"), (500, "D"), (100, "C"), (50, "L"), (10, "X"), (5, "V"), (1, "I"))


        def to_roman(number):
            text = ""
            for value, letter in VALUES:
                text += letter * (number // value)
                number %= value
            return text
        """,
        {
            "[to_roman(number) for number in (4, 9, 14, 40, 1994, 2024)]": [
                "IV",
                "IX",
                "XIV",
                "XL",
                "MCMXCIV",
                "MMXXIV",
            ]
        },
        "roman.py",
    ),
    "intervals": (
        "`merge([(1, 3), (2, 6)])` returns both intervals. Intervals that overlap or touch become "
        "one.",
        """
        def merge(intervals):
            merged = []
            for begin, end in sorted(intervals):
                if merged and begin < merged[-1][0]:
                    merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
                else:
                    merged.append((begin, end))
            return merged
        """,
        {
            "merge([(1, 2), (2, 3)])": [[1, 3]],
            "merge([(1, 3), (2, 6), (8, 9)])": [[1, 6], [8, 9]],
            "merge([(1, 9), (2, 3)])": [[1, 9]],
        },
        "intervals.py",
    ),
    "versions": (
        "`newer('1.10', '1.9')` returns False. Parts of a version are compared as numbers.",
        """
        def newer(first, second):
            return first.split(".") > second.split(".")
        """,
        {
            "[newer('1.10', '1.9'), newer('1.9', '1.10')]": [True, False],
            "[newer('2.0', '1.99.9'), newer('1.0', '1.0')]": [True, False],
        },
        "versions.py",
    ),
    "cache": (
        "`Cache` drops the newest entry when it is full. It must drop the one that was used the"
        " longest time ago.",
        """
        class Cache:
            def __init__(self, size):
                self.size = size
                self.entries = {}

            def get(self, key):
                return self.entries.get(key)

            def put(self, key, value):
                if len(self.entries) >= self.size:
                    self.entries.popitem()
                self.entries[key] = value
        """,
        {
            (
                "(c := Cache(2), c.put('a', 1), c.put('b', 2), c.get('a'), c.get('b'), "
                "c.put('c', 3))[3:5]"
            ): [
                1,
                2,
            ],
            (
                "(c := Cache(2), c.put('a', 1), c.put('b', 2), c.get('b'), c.put('c', "
                "3), c.get('a'), c.get('b'), c.get('c'))[5:]"
            ): [
                None,
                2,
                3,
            ],
            (
                "(c := Cache(2), c.put('b', 2), c.put('c', 3), c.put('c', 4), "
                "c.get('b'), c.get('c'))[4:]"
            ): [
                2,
                4,
            ],
        },
        "cache.py",
    ),
    "slugs": (
        "`slug('Hello,  World!')` returns 'hello,--world!'. Each run of other characters than "
        "letters and digits becomes one hyphen, none at the ends.",
        """
        def slug(title):
            return title.lower().replace(" ", "-")
        """,
        {"[slug('Hello,  World!'), slug('  a b2 '), slug('!')]": ["hello-world", "a-b2", ""]},
        "slugs.py",
    ),
    "tables": (
        "A quoted field with a comma in it is cut in two by `parse_line`. A doubled quote in a "
        "quoted field stands for one quote.",
        """
        def parse_line(line):
            return [field.strip('"') for field in line.split(",")]
        """,
        {
            'parse_line(\'"say ""hi"" now",2\')': ['say "hi" now', "2"],
            "parse_line('a,\"b,c\"')": ["a", "b,c"],
            "parse_line('a,,b')": ["a", "", "b"],
        },
        "tables.py",
    ),
    "paths": (
        "`normalize('/a/../../b')` returns '/../b'. `..` at the root stays at the root.",
        """
        def normalize(path):
            parts = []
            for part in path.split("/"):
                if part == ".." and parts:
                    parts.pop()
                elif part not in ("", "."):
                    parts.append(part)
            return "/" + "/".join(parts)
        """,
        {
            "[normalize('/a/../../b'), normalize('/a/./b//c/..'), normalize('/..')]": [
                "/b",
                "/a/b",
                "/",
            ]
        },
        "paths.py",
    ),
}
"""Name -> what is wrong, the module with the mistake, expressions with their values, and the
module's file."""


def write_tasks(folder: Path) -> None:
    for name, (issue, module, expected, file) in REPOSITORIES.items():
        files = {
            "task.toml": TASK_FILE.format(name=name),
            "instruction.md": f"{issue} Repair {file} in /repo.\n",
            "environment/Dockerfile": DOCKERFILE,
            f"environment/repo/{file}": dedent(module).lstrip(),
            "tests/test.sh": TESTS,
            "tests/test.py": CHECK.format(file=file, expected=expected),
        }
        for place, content in files.items():
            path = folder / name / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


if __name__ == "__main__":
    write_tasks(Path(sys.argv[1] if len(sys.argv) > 1 else "tasks"))
