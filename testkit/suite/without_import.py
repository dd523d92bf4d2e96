"""What reaches a file without an import: the one table of it.

`users` reach `used`. Patterns are of paths from the root of the repository; `*` crosses folders.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """Files that reach others, and how."""

    users: tuple[str, ...]
    used: tuple[str, ...]
    how: str


SOURCE_READERS = tuple(
    f"tests/test_{name}.py" for name in ("names", "plain_names", "plainness", "sizes", "signatures")
)
"""They read every source and run none."""
_CHART = ("helm/*", "k8s/*", "Dockerfile.*", ".dockerignore", "requirements/*", "configs/*")
_SERVICES = "services/rollcast"
LINKS = (
    Link(
        (f"{_SERVICES}/recipe/losses/make.py",),
        (f"{_SERVICES}/recipe/losses/*.py",),
        "a loss is found by its kind",
    ),
    Link(
        (f"{_SERVICES}/config/losses/found.py",),
        (f"{_SERVICES}/config/losses/*.py",),
        "found by name",
    ),
    Link(
        (f"{_SERVICES}/config/environments/found.py",),
        (f"{_SERVICES}/config/environments/*.py",),
        "found by name",
    ),
    Link(
        (f"{_SERVICES}/environments/kinds/kind.py",),
        (f"{_SERVICES}/environments/kinds/*.py",),
        "found by name",
    ),
    Link(
        (f"{_SERVICES}/local/services.py", f"{_SERVICES}/cli/main.py"),
        (f"{_SERVICES}/*/__main__.py",),
        "services are started by their names",
    ),
    Link(
        (f"{_SERVICES}/*/__main__.py",),
        (f"{_SERVICES}/*/service.py",),
        "service_process imports them by name",
    ),
    Link(
        (f"{_SERVICES}/local/trial.py",),
        (f"{_SERVICES}/*/trial.py",),
        "trials are started by their names",
    ),
    Link(
        (f"{_SERVICES}/tasks/sandbox/client.py",),
        (f"{_SERVICES}/tasks/sandbox/*.py",),
        "a sandbox is a process",
    ),
    Link(
        (f"{_SERVICES}/environments/*/adapter.py",),
        (f"{_SERVICES}/processes/frames.py", f"{_SERVICES}/processes/tree.py"),
        "loaded by their paths in the Python of another package",
    ),
    Link(
        (f"{_SERVICES}/generator/vllm/engine_start.py",),
        (f"{_SERVICES}/generator/vllm/*.py",),
        "vLLM's own processes import the plugin and the worker",
    ),
    Link(
        ("tests/chart/*.py", "tests/documents/test_kubernetes.py"), _CHART, "the chart is rendered"
    ),
    Link(
        ("tests/monitoring/*.py",),
        ("monitoring/*", "helm/rollcast/files/*"),
        "the dashboards and alerts are made",
    ),
    Link(("tests/config/*.py", "tests/cli/*.py"), ("configs/*",), "shipped run files are parsed"),
    Link(
        ("tests/documents/*.py",),
        (
            "docs/*",
            "README.md",
            "CONTRIBUTING.md",
            "mkdocs.yml",
            "documents/*",
            "Makefile",
            ".ci/run",
            "benchmarks/results/clients.json",
            "benchmarks/results/gpu-learner-*.json",
            f"{_SERVICES}/trainer/learner/compilation.json",
            "requirements/clients.yaml",
        ),
        "documents are read, and their commands compared with the code",
    ),
    Link(("tests/test_contributing.py",), ("CONTRIBUTING.md", "docs/*"), "its diffs are applied"),
    Link(("tests/test_notebooks.py",), ("docs/notebooks/*",), "notebooks are run"),
    Link(
        ("tests/test_workflows.py",),
        (".github/*", "Makefile", "requirements/*"),
        "workflows are read",
    ),
    Link(
        ("tests/test_requirements.py", "tests/cli/test_base_install.py"),
        ("requirements/*", "pyproject.toml"),
        "read",
    ),
    Link(
        ("tests/test_wire_generated.py",),
        ("proto/*", f"{_SERVICES}/wire/*"),
        "protobuf code is made again",
    ),
    Link(
        ("tests/test_results.py",), ("benchmarks/*", "lab/*"), "results are compared with documents"
    ),
    Link(("tests/test_debian.py",), ("requirements/debian.sh",), "run"),
    Link(("tests/test_license.py",), ("LICENSE", "pyproject.toml"), "the wheel is built"),
    Link(("tests/test_licenses.py",), ("requirements/*.txt",), "pinned packages are looked up"),
    Link(("tests/documents/test_security.py",), ("SECURITY.md",), "it names tests"),
    Link(("tests/rollouts/test_redis_users.py",), ("docs/kubernetes.md",), "its users are made"),
    Link(SOURCE_READERS, ("services/*.py",), "every source is read"),
    Link(
        ("tests/chart/test_dry_run.py",),
        (f"{_SERVICES}/autoscaler/dry_run.py",),
        "the chart's hook is run",
    ),
    Link(
        ("tests/test_types.py", "tests/test_layers.py"),
        ("pyproject.toml",),
        "the checkers' settings",
    ),
    Link(
        ("tests/python/*.py",),
        (f"{_SERVICES}/python.py",),
        "`import rollcast` loads it when it is asked for",
    ),
    Link(
        ("tests/local/test_calculator_example.py", "tests/trainer/test_scalerl_step.py"),
        ("examples/*",),
        "run",
    ),
    Link(
        ("tests/generator/endpoint/test_client_requests.py",),
        ("tests/generator/endpoint/client_requests/*",),
        "recorded requests are sent again",
    ),
    Link(
        ("tests/generator/endpoint/test_documented_fields.py",),
        ("docs/episodes.md",),
        "its table is compared with the check of requests",
    ),
    Link(
        ("testkit/tasks/hostile_programs.py",),
        ("testkit/tasks/hostile_programs.txt",),
        "programs that mean harm are read",
    ),
    Link(
        ("testkit/fuzz/targets/lookup.py",),
        ("testkit/fuzz/targets/*.py",),
        "a kind of input is found by its area",
    ),
    Link(
        ("tests/fuzz/test_crashers.py",),
        ("testkit/fuzz/seeds/*", "configs/*"),
        "stored inputs are read again",
    ),
    Link(("tests/suite/*.py",), ("tests/*.json",), "the ledger and the records are read"),
)
