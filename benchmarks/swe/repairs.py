"""The repaired modules of examples/swe, and a command that repairs a repository every second time,
and submits it.
"""

from __future__ import annotations

import base64
import json

REPAIRS = {
    "calendar_days.py": """
def is_leap_year(year):
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
""",
    "chunks.py": """
def chunks(items, size):
    return [items[i : i + size] for i in range(0, len(items), size)]
""",
    "statistic.py": """
from statistics import median
""",
    "roman.py": """
VALUES = {1000: "M", 900: "CM", 500: "D", 400: "CD", 100: "C", 90: "XC", 50: "L", 40: "XL",
    10: "X", 9: "IX", 5: "V", 4: "IV", 1: "I"}


def to_roman(number):
    text = ""
    for value, letters in VALUES.items():
        text += letters * (number // value)
        number %= value
    return text
""",
    "intervals.py": """
def merge(intervals):
    merged = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
""",
    "versions.py": """
def newer(first, second):
    return [int(part) for part in first.split(".")] > [int(part) for part in second.split(".")]
""",
    "cache.py": """
class Cache:
    def __init__(self, size):
        self.size = size
        self.entries = {}

    def get(self, key):
        if key in self.entries:
            self.entries[key] = self.entries.pop(key)
        return self.entries.get(key)

    def put(self, key, value):
        self.entries.pop(key, None)
        if len(self.entries) >= self.size:
            del self.entries[next(iter(self.entries))]
        self.entries[key] = value
""",
    "slugs.py": """
import re


def slug(title):
    return re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")
""",
    "tables.py": """
import csv


def parse_line(line):
    return next(csv.reader([line]))
""",
    "paths.py": """
def normalize(path):
    parts = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)
""",
}

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""Ends an episode of mini-swe-agent."""


def repair_command() -> str:
    """A command of one line for any of the repositories."""
    files = base64.b64encode(json.dumps(REPAIRS).encode()).decode()
    program = (
        f"import base64, json, os; files = json.loads(base64.b64decode('{files}')); [open(file, "
        "'w').write(text) for file, text in files.items() if os.path.exists(file)]"
    )
    return f'[ $((RANDOM % 2)) = 0 ] || python3 -c "{program}"; {SUBMIT}'
