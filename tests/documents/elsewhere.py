"""Commands of the documents that another test carries out, because they start services or take
long.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from tests.documents.documented import ROOT, Documented


@dataclass(frozen=True)
class Elsewhere:
    """Which test, or which script of the repository, carries out what begins so."""

    beginning: str
    file: str
    function: str
    """Empty where it is a script that a hosted workflow runs."""
    words: tuple[str, ...]
    """Stand in that file, and show that it is the command: also those that only its helpers say."""

    def missing(self) -> list[str]:
        """What does not stand where it should."""
        path = ROOT / self.file
        if not path.is_file():
            return [self.file]
        text = path.read_text()
        lacks = [word for word in self.words if word not in text]
        return (
            lacks
            if not self.function or self.function in _functions(path)
            else [*lacks, self.function]
        )


def _functions(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


_UP = (
    "tests/system/test_up.py",
    "test_ten_lines_run_are_stopped_by_ctrl_c_and_continued_to_the_end",
)
_RESUMED_UP = (
    "tests/system/test_resumed_up.py",
    "test_a_run_that_has_ended_goes_on_with_other_settings_and_its_prometheus_sees_it",
)
ELSEWHERE = (
    Elsewhere("rollcast up --config sums.yaml", "tests/system/test_tutorial.py",
        "test_the_tutorial_trains_what_its_page_says",
        ("tutorial.md", '"up", "--config", "sums.yaml"')),
    Elsewhere("rollcast up --config my-run.yaml --resume", *_RESUMED_UP,
        ('"up", "--config", "run.yaml", "--resume"',)),
    Elsewhere("rollcast up --config my-run.yaml --generators 2", "tests/cli/test_commands.py",
        "test_generators_of_the_command_line_stand_above_those_of_the_file", ('"--generators"',)),
    Elsewhere("rollcast up --config my-run.yaml --monitor", *_RESUMED_UP,
        ('"--resume", "--monitor"',)),
    Elsewhere("rollcast up", *_UP, ('"up", "--config", "run.yaml"',)),
    Elsewhere("rollcast backtest --corpus", "tests/cli/corpus/test_backtest_corpus.py",
        "test_the_program_of_the_documentation_competes",
        ('"backtest", "--corpus"', '"--forecaster"')),
    Elsewhere("python -m lab.plainness", "tests/test_plainness.py",
        "test_prose_is_within_its_budget", ("lab.plainness.density",)),
    Elsewhere("rollcast config check my-run.yaml --resume", "tests/config/test_wrong_run_files.py",
        "test_a_check_of_a_resume_names_what_differs_and_one_for_elsewhere_looks_at_no_folder",
        ('"--resume"',)),
    Elsewhere("rollcast show runs/demo --page", "tests/cli/test_show_page.py",
        "test_the_page_of_a_run_that_is_over_is_served_again_and_changes_nothing_in_its_folder",
        ('"--page"',)),
    Elsewhere("rollcast queue", "tests/cli/test_queue.py",
        "test_an_action_changes_one_task_or_says_why_not",
        ('rollcast("queue"', "--task", "--requeue", "--take", "--bury", "--reason")),
    Elsewhere("rollcast demo", "benchmarks/results/demo.json", "", ('"benchmark": "demo"',)),
    Elsewhere("rollcast try", "tests/local/test_trial_with_an_engine.py",
        "test_a_trial_samples_grades_with_an_own_function_and_times_an_update_on_all_ranks",
        ('"try", "--config", "run.yaml", "--prompts"',)),
    Elsewhere("rollcast init$", "tests/cli/test_init.py",
        "test_on_a_terminal_it_asks_and_offers_what_suits", ('"init", "asked.yaml"',)),
    Elsewhere("rollcast init --model ./model --data rows.parquet", "tests/cli/test_init.py",
        "test_chats_with_a_function_of_ones_own_and_a_budget_in_hours",
        ('"./reward.py:grade"', '"0.5h"')),
    Elsewhere("rollcast plan devices --devices 80 --step-seconds", "tests/cli/test_plan_devices.py",
        "test_given_equal_lengths_the_answer_is_the_closed_form",
        ('"plan", "devices"', '"--tokens-per-second"')),
    Elsewhere("rollcast plan devices", "tests/cli/test_plan_devices.py",
        "test_a_run_folder_gives_its_rates_and_the_model_returns_its_speed",
        ('"--run-folder", folder',)),
    Elsewhere("rollcast fit http://127.0.0.1:9090", "tests/forecaster/test_prometheus.py",
        "test_an_evaluation_that_was_made_twice_is_one_point", ("read_curve(url",)),
    Elsewhere("rollcast ablate --config my-run.yaml --without all --budget",
        "tests/system/test_ablate.py",
        "test_a_set_with_a_budget_takes_turns_and_ends_in_the_answer_of_a_sweep",
        ('"ablate"', '"--budget"')),
    Elsewhere("rollcast ablate", "tests/system/test_ablate.py",
        "test_a_set_is_stopped_by_ctrl_c_and_continued_to_its_table", ('"ablate"', "--without")),
    Elsewhere("rollcast replay", "tests/documents/test_documented_replays.py",
        "test_a_documented_command_replays", ("replay.md", "DOCUMENTED")),
    Elsewhere("rollcast sweep run", "tests/system/test_sweep.py",
        "test_a_sweep_is_stopped_killed_and_continued_to_its_answer", ('"sweep", "run"', "--plot")),
    Elsewhere("rollcast sweep decide", "tests/cli/test_sweep_decide.py",
        "test_an_answer_comes_before_the_next_question_is_asked", ('"sweep", "decide"',)),
    Elsewhere("rollcast model arithmetic", "tests/local/test_trained_demo_model.py",
        "test_the_model_is_trained_once_and_its_characters_are_its_tokens", ("ensure_base_model",)),
    Elsewhere("rollcast model merge", "tests/trainer/test_merged_adapters.py",
        "test_the_command_merges_into_a_folder_that_is_not_there_yet", ('"merge"', '"--folder"')),
    Elsewhere("rollcast model export", "tests/trainer/test_export_checkpoint.py",
        "test_the_best_is_exported_as_it_was", ('"model", "export"',)),
    Elsewhere("rollcast generator", "tests/cli/test_commands.py",
        "test_a_starter_becomes_the_service", ("generator",)),
    Elsewhere("rollcast trainer", "tests/cli/test_commands.py",
        "test_a_starter_becomes_the_service", ("trainer",)),
    Elsewhere("rollcast forecaster", "tests/cli/test_commands.py",
        "test_a_starter_becomes_the_service", ("forecaster",)),
    Elsewhere("python -m rollcast.loggers", "tests/loggers/test_service.py",
        "test_one_that_works_and_one_that_is_away_are_told_apart_and_ended", ("rollcast.loggers",)),
    Elsewhere("python -m rollcast.autoscaler", "tests/autoscaler/test_service.py",
        "test_keda_is_told_what_a_starved_trainer_needs", ("running(tmp_path, None,",)),
    Elsewhere("python -m rollcast.generator --park", "tests/generator/test_main.py",
        "test_an_engine_that_does_not_fit_is_one_sentence_and_parks_where_that_is_asked_for",
        ('"--park"]',)),
    Elsewhere("python -m rollcast.grader", "tests/grader/processes.py", "",
        ('"rollcast.grader",',)),
    Elsewhere("python -m rollcast.trainer.launch", "tests/trainer/test_launch.py",
        "test_ranks_of_one_machine_need_no_name", ("launch",)),
    Elsewhere("torchrun -m rollcast.trainer", "tests/system/test_run.py",
        "test_a_run_of_two_ranks_to_its_exported_model_and_on_with_one_without_a_drift",
        ("torchrun",)),
    Elsewhere("python -m benchmarks.gpu --minutes", "tests/gpu/test_deadline.py",
        "test_the_whole_ends_in_time_and_begins_nothing_that_does_not_fit", ('"--minutes"',)),
    Elsewhere("python -m benchmarks.world_prior --curves", "tests/scaling/test_world_prior.py", "",
        ("benchmarks.world_prior", '"--curves"')),
    Elsewhere("python -m benchmarks.gpu.pack", "tests/gpu/test_pack.py",
        "test_an_archive_holds_what_was_put_in_it", ("archive.compress",)),
    Elsewhere("python -m benchmarks.gpu", "tests/gpu/test_parts.py", "",
        ("benchmarks.gpu", "--small")),
    Elsewhere("python -m benchmarks.monitoring", "tests/monitoring/test_queries.py", "",
        ("with live_runs(",)),
    Elsewhere("python -m documents", "tests/documents/test_pages.py",
        "test_a_reference_page_is_what_the_code_says", ("from documents.__main__ import",)),
    Elsewhere("python -m monitoring", "tests/monitoring/test_dashboards.py", "",
        ("from monitoring.__main__ import",)),
    Elsewhere("python make_data.py", "tests/system/test_tutorial.py",
        "test_the_tutorial_trains_what_its_page_says", ("make_data.py",)),
    Elsewhere("python make_model.py", "tests/local/test_calculator_example.py",
        "test_its_run_file_is_right_and_turns_of_its_model_extend_each_other",
        ("make_model.main()",)),
    Elsewhere("python -m rollcast.environments.verifiers",
        "tests/environments/test_real_verifiers.py", "test_the_tasks_of_a_taskset_are_a_data_set",
        ("main([file,",)),
    Elsewhere("python -m rollcast.environments.harbor",
        "tests/environments/harbor/test_tasks.py", "test_the_data_set_of_a_folder",
        ("rollcast.environments.harbor",)),
    Elsewhere("python make_tasks.py", "benchmarks/swe/__main__.py", "", ('"make_tasks.py"',)),
    Elsewhere("python -m venv", "benchmarks/clients/__main__.py", "", ('"-m", "venv"',)),
    Elsewhere("python -m pytest", ".ci/library", "", ("-m pytest",)),
    Elsewhere("prometheus --config.file", "tests/local/test_monitor.py",
        "test_a_real_prometheus_scrapes_the_services_and_evaluates_every_alert",
        ("prometheus_spec",)),
    Elsewhere("curl -H Authorization: Bearer $ROLLCAST_PUSH_TOKEN", "tests/push/test_push.py",
        "test_the_documents_line_for_any_other_language_runs", ("push.md", "curl")),
    Elsewhere("pip install .", ".ci/library", "", ("pip\" install -q '.[",)),
    Elsewhere("make test", ".ci/run", "", ("make test",)),
    Elsewhere("make check", "tests/test_types.py", "", ("`make check`", "lint_imports")),
    Elsewhere("make near", "tests/suite/test_near.py", "", ("from testkit.suite.near import",)),
    Elsewhere("make proofs", "tests/suite/test_proofs.py", "",
        ("from testkit.suite.prove import",)),
    Elsewhere("python -m testkit.suite.prove", "tests/suite/test_proofs.py", "",
        ("from testkit.suite.prove import",)),
    Elsewhere("make release-proofs", "Makefile", "", ("requirements/release_proofs.sh",)),
    Elsewhere("make durations", "Makefile", "", ("testkit.suite.record_durations",)),
    Elsewhere("make docs", ".ci/docs", "", ("make docs",)),
    Elsewhere("make setup", "Makefile", "", ("test: $(INSTALLED)", "setup: $(INSTALLED)")),
    Elsewhere("make demo", "benchmarks/results/demo.json", "", ('"benchmark": "demo"',)),
    Elsewhere("make chart", "tests/chart/test_written.py", "",
        ('"values_schema", "readme", "recipes"',)),
    Elsewhere("make wire", "tests/test_wire_generated.py", "test_generated_code_does_not_drift",
        ("grpc_tools.protoc",)),
)  # fmt: skip

LEFT = {
    "logged": "docs/images/logged-mlflow.png",
    "page_pictures": "docs/images/page-no-ceiling.png",
    "reread": "benchmarks/results/ablation.json",
    "terminal": "docs/images/terminal-start-80x24.png",
}
"""What those have left that write no result of their own."""


def carried_out_by(command: Documented) -> Elsewhere | None:
    """The first whose beginning it has; one that ends with `$` is the whole command."""
    return next((one for one in ELSEWHERE if f"{command.text}$".startswith(one.beginning)), None)


def is_measured(command: Documented) -> bool:
    """A benchmark takes minutes: that it was carried out is shown by what it left, its result or
    its pictures.
    """
    if command.words[:2] != ("python", "-m"):
        return False
    package, _, name = command.words[2].partition(".")
    if package not in ("benchmarks", "lab"):
        return False
    if name in LEFT:
        return any(ROOT.glob(LEFT[name]))
    text = (ROOT / package / name / "__main__.py").read_text()
    result = ROOT / package / "results" / f"{name}.json"
    return re.search(rf"write_result\(['\"]{name}['\"]", text) is not None and result.is_file()
