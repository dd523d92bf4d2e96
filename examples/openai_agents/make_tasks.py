"""Writes tasks.jsonl: 2,000 tasks of two calculations each."""

import json
import random

numbers = random.Random(0)
with open("tasks.jsonl", "w") as file:
    for _ in range(2_000):
        first, second, third = (numbers.randint(11, 99) for _ in range(3))
        prompt = f"What is {first} times {second}, plus {third}?"
        row = {"prompt": prompt, "answer": str(first * second + third)}
        file.write(json.dumps(row) + "\n")
