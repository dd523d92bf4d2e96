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
if python3 -m pytest -q -p no:cacheprovider /tests/test_{name}.py; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
"""
REPOSITORIES = {
    "calendar": (
        "`is_leap_year(1900)` returns True. Years that are divisible by 100 are leap years only"
        " if they are divisible by 400.",
        """
        def is_leap_year(year):
            return year % 4 == 0
        """,
        """
        def test_leap_years():
            from calendar_days import is_leap_year
            years = (1900, 2000, 2023, 2024, 2100)
            assert [is_leap_year(year) for year in years] == [False, True, False, True, False]
        """,
        "calendar_days.py",
    ),
    "chunks": (
        "`chunks([1, 2, 3], 2)` loses the last item: it returns [[1, 2]].",
        """
        def chunks(items, size):
            return [items[i:i + size] for i in range(0, len(items) - size + 1, size)]
        """,
        """
        def test_chunks():
            from chunks import chunks
            assert chunks([1, 2, 3], 2) == [[1, 2], [3]]
            assert chunks([], 2) == []
            assert chunks([1, 2], 2) == [[1, 2]]
        """,
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
        """
        def test_median():
            from statistic import median
            assert median([4, 1, 3, 2]) == 2.5
            assert median([3, 1, 2]) == 2
        """,
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
        """
        def test_roman():
            from roman import to_roman
            numbers = (4, 9, 14, 40, 1994, 2024)
            expected = ["IV", "IX", "XIV", "XL", "MCMXCIV", "MMXXIV"]
            assert [to_roman(number) for number in numbers] == expected
        """,
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
        """
        def test_merge():
            from intervals import merge
            assert merge([(1, 3), (2, 6), (8, 9)]) == [(1, 6), (8, 9)]
            assert merge([(1, 9), (2, 3)]) == [(1, 9)]
            assert merge([(1, 2), (2, 3)]) == [(1, 3)]
        """,
        "intervals.py",
    ),
    "versions": (
        "`newer('1.10', '1.9')` returns False. Parts of a version are compared as numbers.",
        """
        def newer(first, second):
            return first.split(".") > second.split(".")
        """,
        """
        def test_newer():
            from versions import newer
            assert newer("1.10", "1.9")
            assert not newer("1.9", "1.10")
            assert newer("2.0", "1.99.9")
            assert not newer("1.0", "1.0")
        """,
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
        """
        def test_cache():
            from cache import Cache
            cache = Cache(2)
            cache.put("a", 1)
            cache.put("b", 2)
            assert cache.get("a") == 1
            assert cache.get("b") == 2
            cache.put("c", 3)
            assert (cache.get("a"), cache.get("b"), cache.get("c")) == (None, 2, 3)
            cache.put("c", 4)
            assert (cache.get("b"), cache.get("c")) == (2, 4)
        """,
        "cache.py",
    ),
    "slugs": (
        "`slug('Hello,  World!')` returns 'hello,--world!'. Each run of other characters than "
        "letters and digits becomes one hyphen, none at the ends.",
        """
        def slug(title):
            return title.lower().replace(" ", "-")
        """,
        """
        def test_slug():
            from slugs import slug
            assert slug("Hello,  World!") == "hello-world"
            assert slug("  a b2 ") == "a-b2"
            assert slug("!") == ""
        """,
        "slugs.py",
    ),
    "tables": (
        "A quoted field with a comma in it is cut in two by `parse_line`. A doubled quote in a "
        "quoted field stands for one quote.",
        """
        def parse_line(line):
            return [field.strip('"') for field in line.split(",")]
        """,
        """
        def test_parse_line():
            from tables import parse_line
            assert parse_line('a,"b,c"') == ["a", "b,c"]
            assert parse_line('"say ""hi"" now",2') == ['say "hi" now', "2"]
            assert parse_line("a,,b") == ["a", "", "b"]
        """,
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
        """
        def test_normalize():
            from paths import normalize
            assert normalize("/a/../../b") == "/b"
            assert normalize("/a/./b//c/..") == "/a/b"
            assert normalize("/..") == "/"
        """,
        "paths.py",
    ),
}
"""Name -> what is wrong, the module with the mistake, its test, and the module's file."""


def write_tasks(folder: Path) -> None:
    for name, (issue, module, test, file) in REPOSITORIES.items():
        files = {
            "task.toml": TASK_FILE.format(name=name),
            "instruction.md": f"{issue} Repair {file} in /repo.\n",
            "environment/Dockerfile": DOCKERFILE,
            f"environment/repo/{file}": dedent(module).lstrip(),
            "tests/test.sh": TESTS.format(name=name),
            f"tests/test_{name}.py": dedent(test).lstrip(),
        }
        for place, content in files.items():
            path = folder / name / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


if __name__ == "__main__":
    write_tasks(Path(sys.argv[1] if len(sys.argv) > 1 else "tasks"))
