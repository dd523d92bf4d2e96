"""The proofs of this repository: for each its subject.

What its tests import is added by `proofs.with_imports`.
"""

from __future__ import annotations

from testkit.suite.proofs import Proof

_PACKAGES = "requirements/cpu.txt"
"""The pinned packages: another vLLM or torch makes the proofs of both due."""


def _rooms(*names: str) -> tuple[str, ...]:
    """Folders of services/rollcast."""
    return tuple(f"services/rollcast/{name}" for name in names)


def _tests(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names)


_RUN = _rooms("chat", "config", "connections", "curves", "environments", "forecaster", "generator",
    "grader", "local", "loggers", "memory", "processes", "recipe", "rollouts", "runfolder",
    "scaling", "tasks", "telemetry", "trainer", "weights", "wire")  # fmt: skip
"""What a run of the whole system passes through."""
_CHART = ("helm", "k8s", *_rooms("config"), "tests/chart", _PACKAGES)
_ENGINE = (
    *_rooms(
        "chat",
        "environments",
        "generator",
        "processes",
        "recipe",
        "rollouts",
        "tasks",
        "trainer",
        "weights",
        "wire",
    ),
    "tests/generator",
    "testkit/generator",
    "testkit/trainer",
    "testkit/weights",
    "testkit/replay.py",
    "testkit/tiny_model.py",
    _PACKAGES,
)
"""What a token passes through."""
PROOFS: tuple[Proof, ...] = (
    Proof(
        "chart-upgrades",
        (
            "Every recipe fits; an upgrade keeps the values of every earlier chart, an uninstall "
            "leaves no trainer."
        ),
        (
            *_CHART,
            "tests/autoscaler",
            "tests/config/wrong_run_files.yaml",
            *_rooms("autoscaler", "cli", "local", "memory", "recipe", "tasks"),
        ),
        _tests(
            "chart",
            "every_earlier_chart",
            "every_recipe_fits",
            "check_of_every_mistake",
            "uninstall",
        ),
    ),
    Proof(
        "chart-versions",
        (
            "Every value set is right for every Kubernetes, and a run of the chart's processes "
            "reaches its end."
        ),
        (*_CHART, "monitoring", *_RUN, *_rooms("autoscaler")),
        _tests("chart", "matrix", "checkov", "runs_locally", "every_role", "platform_wishes"),
    ),
    Proof(
        "images",
        (
            "Images have the packages that their services import, and the watcher names an image "
            "that cannot be had."
        ),
        (
            "Dockerfile.control",
            "Dockerfile.generator",
            "Dockerfile.trainer",
            ".dockerignore",
            "pyproject.toml",
            "requirements",
            "helm",
            "benchmarks/images",
            *_rooms(
                "generator", "trainer", "forecaster", "autoscaler", "grader", "loggers", "local"
            ),
        ),
        _tests("chart", "images", "image_lists", "built_images", "image_watch"),
    ),
    Proof(
        "cluster-program",
        "`make cluster-proof` goes through its steps and names the step that fails.",
        (
            "testkit/cluster",
            "benchmarks/cluster",
            "helm",
            "tests/chart",
            "docs/releases.md",
            "Makefile",
        ),
        _tests("chart", "cluster_proof", "cluster_steps", "cluster_watching"),
    ),
    Proof(
        "dashboards",
        "Every query of every dashboard is answered by a real Prometheus that watched a real run.",
        ("monitoring", "testkit/monitoring", "helm/rollcast/files", *_RUN),
        _tests("monitoring", "queries"),
    ),
    Proof(
        "gpu-program",
        "`python -m benchmarks.gpu` packs the system, measures part by part and ends in time.",
        (
            "testkit/gpu",
            "benchmarks/gpu",
            "benchmarks/wire_faults",
            "tests/gpu",
            "examples",
            "requirements",
            *_rooms("trainer", "weights"),
        ),
        tuple(
            _tests(
                "gpu",
                "deadline",
                "first_token",
                "machine_code",
                "one_card",
                "order",
                "pack",
                "parts",
                "publishing",
                "results",
                "system",
                "wire_tests",
            )
        ),
    ),
    Proof(
        "contributing",
        "The examples of CONTRIBUTING.md are applied to a copy, and their commands pass there.",
        (
            "CONTRIBUTING.md",
            "documents",
            "docs/data.md",
            "docs/formats.md",
            "tests/contributing_examples.py",
            "services/rollcast/trainer/control/reporting.py",
            "services/rollcast/runfolder/records.py",
            "testkit/trainer/states.py",
            *_rooms("config", "recipe", "tasks", "curves", "loggers", "telemetry"),
        ),
        ("tests/test_contributing_examples.py",),
    ),
    Proof(
        "repository",
        "Workflows, package lists, results, notebooks and the licence are what they say.",
        (
            ".github",
            ".ci",
            "requirements",
            "pyproject.toml",
            "benchmarks",
            "lab",
            "docs",
            "helm",
            "LICENSE",
            "Makefile",
            "Dockerfile.control",
            "Dockerfile.generator",
            "Dockerfile.trainer",
        ),
        (
            "tests/test_workflows.py",
            "tests/test_requirements.py",
            "tests/test_results.py",
            "tests/test_notebooks.py",
            "tests/test_license.py",
            "tests/test_debian.py",
        ),
    ),
    Proof(
        "forked-programs",
        "Programs of tests that are forks behave as programs: signals, sessions, exit codes.",
        ("testkit/forked_programs.py", "testkit/uncompiled.py", "tests/conftest.py"),
        ("tests/test_forked_programs.py",),
    ),
    Proof(
        "suite-program",
        (
            "Calls of pytest end in time, are measured, and are no success if they were cut off; "
            "mutants are as drawn."
        ),
        ("testkit/suite", "tests/conftest.py"),
        _tests("suite", "pytest_call", "measurement", "first_failure", "mutation"),
    ),
    Proof(
        "documented-commands",
        "The commands of the documents do what stands there, as a reader types them.",
        (
            "docs",
            "README.md",
            "lab/notes.md",
            "tests/documents",
            "configs",
            *_rooms(
                "cli",
                "config",
                "curves",
                "local",
                "memory",
                "plots",
                "scaling",
                "simulation",
                "throughput",
            ),
        ),
        _tests("documents", "carried_out_commands"),
    ),
    Proof(
        "reward-functions",
        (
            "What a reward function does wrong is answered by the sentence of "
            "docs/reference/mistakes.md."
        ),
        ("docs/reference/mistakes.md", "tests/cli", *_rooms("cli", "tasks", "config", "local")),
        _tests("cli", "mistakes_of_reward_functions"),
    ),
    Proof(
        "autoscaler-service",
        (
            "The autoscaler as a process: its start, next to another scaler, a moved trainer, the "
            "end of a run."
        ),
        (
            "tests/autoscaler",
            "testkit/autoscaler",
            "helm",
            *_rooms("autoscaler", "connections", "telemetry", "config", "simulation"),
        ),
        _tests(
            "autoscaler", "service_starts_and_ends", "simulated_runs", "fails_safe", "moved_trainer"
        ),
    ),
    Proof(
        "grader-limits",
        "Graders that are full, slow or gone lose no grading.",
        ("tests/grader", *_rooms("grader", "tasks", "connections", "processes")),
        _tests("grader", "graders_at_their_limits", "gvisor"),
    ),
    Proof(
        "local-programs",
        (
            "Programs that a start runs: counting prompts, trials, the demo's base model; the "
            "supervisor's end."
        ),
        (
            "tests/local",
            "docs/reference/mistakes.md",
            "examples",
            _PACKAGES,
            *_rooms(
                "chat",
                "config",
                "environments",
                "generator",
                "local",
                "processes",
                "recipe",
                "tasks",
                "trainer",
            ),
        ),
        _tests(
            "local",
            "prompt_lengths_in_a_program",
            "trained_demo_model",
            "calculator_example",
            "trial_with_an_engine",
            "supervisor_end",
        ),
    ),
    Proof(
        "memory-of-models",
        "What Transformers and vLLM say of a model is what the planner counts with.",
        ("tests/memory", _PACKAGES, *_rooms("memory", "trainer", "recipe")),
        _tests("memory", "other_programs", "step"),
    ),
    Proof(
        "followed-trainers",
        "Trainers of others are watched live as they log.",
        ("tests/push", "services/rollcast/push.py", *_rooms("forecaster", "curves", "scaling")),
        _tests("push", "followed_trainers", "trl"),
    ),
    Proof(
        "many-simulations",
        "What holds in a few simulated runs and split searches holds in many.",
        ("tests/simulation", "testkit/simulation", *_rooms("simulation", "throughput", "recipe")),
        _tests("simulation", "many_simulated_runs", "split_search"),
    ),
    Proof(
        "architectures",
        (
            "Every supported architecture gives the same log-probs in the trainer, the generator "
            "and a plain replay."
        ),
        (*_ENGINE, "helm/rollcast/files/rules.yaml", *_rooms("memory")),
        (
            *_tests(
                "generator",
                "architectures",
                "recurrent_state",
                "expert_stacks",
                "head_precision",
                "llama_episodes",
            ),
            *_tests("trainer", "architectures", "whole_models", "teacher_vllm"),
        ),
    ),
    Proof(
        "adapters-in-engines",
        (
            "LoRA adapters reach a real engine, sample as the trainer computes, and are merged "
            "into their base."
        ),
        (*_ENGINE, *_rooms("local", "cli")),
        (*_tests("generator", "lora"), *_tests("trainer", "merged_adapters")),
    ),
    Proof(
        "engine-starts",
        (
            "Engines start on a fresh machine, end with their generator, and name what they have "
            "no memory for."
        ),
        (*_ENGINE, *_rooms("telemetry", "connections", "local")),
        _tests(
            "generator",
            "fresh_machine",
            "installed_vllm",
            "too_little_memory",
            "orphans",
            "threads",
        ),
    ),
    Proof(
        "trainer-programs",
        (
            "Ranks on several machines, starts and ends, compiled layers, refused memory, the "
            "example of a whole step."
        ),
        (
            *_rooms(
                "trainer",
                "recipe",
                "config",
                "memory",
                "connections",
                "rollouts",
                "runfolder",
                "weights",
                "wire",
            ),
            "examples",
            "tests/trainer",
            "testkit/trainer",
            _PACKAGES,
        ),
        _tests(
            "trainer",
            "machines",
            "launch",
            "last_reading",
            "compiled_layers",
            "refused_memory",
            "scalerl_step_learns",
        ),
    ),
    Proof(
        "agents-of-others",
        (
            "Tasksets of verifiers and servers and sessions of OpenEnv run unchanged, exact to the "
            "token."
        ),
        (
            *_ENGINE,
            "examples",
            "requirements/verifiers.txt",
            "requirements/openenv.txt",
            "testkit/other_environments.py",
            "testkit/verifiers_tasksets.py",
            "testkit/openenv_sessions.py",
        ),
        (
            *_tests(
                "generator/endpoint",
                "verifiers_rollouts",
                "installed_openenv",
                "openenv_replay",
                "two_generators",
            ),
            *_tests("environments", "real_openenv", "real_verifiers"),
        ),
    ),
    Proof(
        "many-episodes",
        (
            "Random episodes by the hundred, in each format of chats, extend one another token by "
            "token."
        ),
        ("tests/chat", *_rooms("chat", "rollouts")),
        _tests("chat", "many_episodes"),
    ),
    Proof(
        "whole-systems",
        (
            "Every process is killed and frozen; runs that stop and go on, an ablation, the "
            "tutorial, the first hour."
        ),
        (
            *_ENGINE,
            *_RUN,
            *_rooms("cli", "plots"),
            "configs",
            "docs/reference/mistakes.md",
            "docs/tutorial.md",
            "helm/rollcast/files",
            "testkit/system",
            "testkit/forked_programs.py",
            "tests/system",
        ),
        _tests(
            "system",
            "faults",
            "up",
            "resumed_up",
            "ablate",
            "tutorial",
            "first_hour",
            "slow_generator",
            "chaos_episodes",
        ),
    ),
    Proof(
        "hostile-bodies",
        "Requests of every shape up to the limit take the endpoint little time and memory.",
        ("tests/generator/endpoint", _PACKAGES, *_rooms("generator", "chat")),
        _tests("generator/endpoint", "all_hostile_bodies"),
    ),
    Proof(
        "hostile-entries",
        (
            "Foreign entries of every kind in the streams and in :inflight end no run and lose no "
            "task."
        ),
        ("tests/rollouts", "testkit/rollouts", *_rooms("rollouts", "trainer", "wire")),
        _tests("rollouts", "many_hostile_entries"),
    ),
    Proof(
        "containers",
        (
            "Episodes in podman's containers and in pods: what a model's programs can and cannot "
            "do, tasks in Harbor's format, and nothing left after a kill."
        ),
        (
            "tests/environments",
            "testkit/containers.py",
            "testkit/pod_server.py",
            *_rooms("environments"),
        ),
        (
            "tests/environments/containers/test_files.py",
            "tests/environments/containers/test_pods.py",
            "tests/environments/containers/test_container_tools.py",
            "tests/environments/containers/test_podman.py",
            "tests/environments/harbor/test_play.py",
        ),
    ),
    Proof(
        "hostile-programs",
        (
            "Over two hundred programs that mean harm, hanging and long answers, and slow programs "
            "are graded rightly."
        ),
        ("tests/tasks", "testkit/tasks", *_rooms("tasks", "grader", "processes")),
        _tests(
            "tasks",
            "all_hostile_programs",
            "all_hanging_answers",
            "long_answers",
            "slow_programs",
            "busy_machine",
        ),
    ),
    Proof(
        "hostile-files",
        (
            "Files that are made to take time or memory are read within bounds, each as large as a "
            "reader takes it."
        ),
        (
            "tests/curves",
            "testkit/formats",
            "services/rollcast/python.py",
            *_rooms("curves", "forecaster"),
        ),
        _tests("curves/formats", "whole_hostile_files", "every_three_ways", "installed_frameworks"),
    ),
    Proof(
        "live-page",
        (
            "The live page in a real browser, its HTTP API under random requests, runs in a "
            "Prometheus that is killed."
        ),
        (
            "tests/forecaster",
            "testkit/forecaster",
            "monitoring",
            "tests/cli/test_show_page.py",
            *_rooms("cli", "forecaster", "curves", "local", "scaling", "telemetry"),
        ),
        (
            *_tests(
                "forecaster",
                "whole_page",
                "many_recordings",
                "openapi",
                "prometheus_runs",
                "replay",
            ),
            "tests/cli/test_show_page.py",
        ),
    ),
    Proof(
        "calibration",
        (
            "Intervals, chances and verdicts are right as often as they say, on many simulated "
            "runs of each kind."
        ),
        ("tests/scaling", "testkit/forecast", *_rooms("scaling")),
        _tests("scaling", "calibration", "learned_prior"),
    ),
)
