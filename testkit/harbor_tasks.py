"""Task folders in Harbor's published format, written by a script."""

from __future__ import annotations

from pathlib import Path

from testkit.containers import IMAGE

TASK_FILE = """\
schema_version = "1.1"
artifacts = ["/app"]

[task]
name = "acme/hello"
description = "Writes a file"
authors = [{name = "A. Author", email = "author@example.com"}]
keywords = ["trivial"]

[metadata]
difficulty = "easy"

[verifier]
timeout_sec = 60.0
environment_mode = "MODE"
env = {EXPECTED = "hello", GREETING = "${HARBOR_GREETING:-none}"}

[agent]
timeout_sec = 60.0

[environment]
build_timeout_sec = 300.0
cpus = 1
memory_mb = 128
storage_mb = 64
workdir = "/app"
env = {PLACE = "Rome"}
gpus = 0
"""
INSTRUCTION = "<!-- harbor-canary GUID 1234 -->\n\nWrite `hello` to the file /app/hello.txt.\n"
DOCKERFILE = f"""\
FROM {IMAGE}
RUN mkdir -p /app
COPY data.txt /app/data.txt
WORKDIR /app
"""
TESTS = """\
#!/bin/sh
echo "tests in $PWD"
if test -f /app/data.txt && grep -q "^$EXPECTED$" /app/hello.txt; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
"""
UNSUPPORTED: dict[str, tuple[str, str]] = {
    "environment.gpus": ("gpus = 0", "gpus = 1"),
    "environment.gpu_types": ("gpus = 0", 'gpu_types = ["H100"]'),
    "environment.tpu": ("gpus = 0", 'tpu = {type = "v6e", topology = "2x2"}'),
    "environment.os": ("gpus = 0", 'os = "windows"'),
    "environment.mcp_servers": ("gpus = 0", '[[environment.mcp_servers]]\nname = "files"'),
    "environment.skills_dir": ("gpus = 0", 'skills_dir = "/skills"'),
    "environment.network_mode": ("gpus = 0", 'network_mode = "allowlist"'),
    "verifier.environment": ("[agent]", "[verifier.environment]\ncpus = 1\n\n[agent]"),
    "verifier.collect": ("[agent]", '[[verifier.collect]]\ncommand = "true"\n\n[agent]'),
    "steps": ("[task]", '[[steps]]\nname = "one"\n\n[task]'),
    "multi_step_reward_strategy": ("artifacts", 'multi_step_reward_strategy = "mean"\nartifacts'),
    "agent.network_mode": ("[environment]", 'network_mode = "public"\n\n[environment]'),
}
"""Field -> text of TASK_FILE, and the text that replaces it."""


def write_task(folder: Path, task_file: str = TASK_FILE, mode: str = "shared") -> Path:
    """Write one task; returns its folder."""
    files = {
        "task.toml": task_file.replace("MODE", mode),
        "instruction.md": INSTRUCTION,
        "environment/Dockerfile": DOCKERFILE,
        "environment/data.txt": "data\n",
        "tests/test.sh": TESTS,
        "solution/solve.sh": "#!/bin/sh\necho hello > /app/hello.txt\n",
    }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder
