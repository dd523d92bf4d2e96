"""Logs and tables as people have them: what is recognised, and what is asked."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from rollcast.config.errors import UserError
from rollcast.curves.axis import make_curve
from rollcast.curves.columns.choices import Columns
from rollcast.curves.curve_source import read_curves
from rollcast.curves.formats.recognise import read_sheet
from testkit.formats.history import read_history

STEPS = (10, 20, 30, 40)
RATES = (0.2, 0.31, 0.37, 0.4)
PAIRS = tuple(zip(STEPS, RATES, strict=True))

PANEL = '"Step","a - eval/acc","a - eval/acc__MIN","a - eval/acc__MAX"\n' + "".join(
    f'"{s}","{r}","{r}","{r}"\n' for s, r in PAIRS
)
RUN_EXPORT = ",_step,_runtime,_timestamp,train/reward,eval/accuracy\n" + "".join(
    f"{n},{s},{36 * s},{1.7e9 + 36 * s},0.9,{r}\n" for n, (s, r) in enumerate(PAIRS)
)
OPENRLHF = "".join(
    f"INFO 05-12 10:0{n}:00 ppo_trainer.py:551] \u2728 Global step {s}: {{'policy_loss': 0.1, "
    "'reward': 0.9, "
    f"'timing/generation': 3.0, 'dynamic_filtering_pass_rate': 0.5}}\n"
    f"INFO 05-12 10:0{n}:09 ppo_trainer.py:600] \u2728 Evaluation completed in 0:00:12, "
    f"global_step {s}, eval_metrics: "
    f"{{'eval_gsm8k_pass4': 0.8, 'eval_gsm8k_pass1': {r}, 'eval_num_samples': 100.0}}\n"
    for n, (s, r) in enumerate(PAIRS)
)
NEMO = "".join(
    f"\n{'=' * 25} Step {s}/100 {'=' * 25}\n\u25b6 Generating\n\n\U0001f4ca Validation Results:\n"
    f"    \u2022 Accuracy: {r:.4f}\n"
    "    \u2022 Average response length: 812.0 tokens\n\n\U0001f4ca Training Results:\n  \u2022 "
    "Loss: 0.0123\n"
    f"  \u2022 Avg Reward: 0.9000\n  \u2022 Mean Generation Length: 800.0\n"
    for s, r in PAIRS
)
PRIME = "".join(
    f"12:00:00 SUCCESS Step {s} | Time: 15.51s | Reward: 0.9000 | Throughput: 812.2 tokens/s | "
    "Seq. Length: 700.1 "
    f"tokens/sample\n12:00:01 SUCCESS Evaluated aime2024 in 12.34s (Avg@8={r:.4f}, Pass@8: "
    "0.9000)\n"
    for s, r in PAIRS
)
OPEN_INSTRUCT = "".join(
    "\u256d\u2500 Metrics \u2500\u256e\n"
    f"\u2502  eval       verifiable_correct_rate: {r} | sequence_lengths: 300.00                  "
    "\u2502\n"
    "\u2502  objective  verifiable_correct_rate: 0.90 | scores: 9.10                            "
    "\u2502\n"
    "\u2502  val        ratio: 1.00 | correct_rate: 0.77                                        "
    "\u2502\n"
    f"\u2502  other      episode: {512 * s} | training_step: {s} | epoch: 0.1                    "
    "\u2502\n"
    "\u2570\u2500\u2500\u2500\u256f\n"
    for s, r in PAIRS
)
PRIME_BESIDE = "".join(
    f"12:00:00    INFO Running evals for checkpoint step {s} (blocking, subprocess)\n"
    f"12:00:00 SUCCESS Step {s + 1} | Time: 15.51s | Reward: 0.9000 | Seq. Length: 700.1 "
    "tokens/sample\n"
    f"12:00:01 SUCCESS Evaluated aime2024 in 12.34s (Avg@8={r:.4f}, Pass@1: {r:.4f}, Pass@8: "
    "0.9000, "
    "No-response: 1.0%, Completion Length: 812.00 (\u00b13.00, \u2208[12.00, 900.00]), Truncated: "
    "2.0%)\n"
    for s, r in PAIRS
)


def _open_instruct_of_rich() -> str:
    """As Rich breaks it at 120 columns: a value stands in the line after its name."""
    printed = StringIO()
    for s, r in PAIRS:
        table = Table(show_header=False, box=None)
        first = "objective/a_name_that_is_as_long_as_theirs: 0.38 | scores: 0.10"
        table.add_row("eval", f"{first} | verifiable_correct_rate: {r}")
        table.add_row("other", f"episode: {512 * s} | training_step: {s} | epoch: 0.12")
        Console(file=printed, width=103).print(Panel(table, title="Metrics", expand=False))
    assert "verifiable_correct_rate: 0" not in printed.getvalue()
    return printed.getvalue()


TENSORBOARD_CSV = "Wall time,Step,Value\n" + "".join(
    f"{1.7e9 + 60 * s},{s},{r}\n" for s, r in PAIRS
)
TRL_CONSOLE = "".join(
    f"{{'loss': {quote}0.01{quote}, 'kl': nan, 'rewards/f/mean': 0.9, 'step': {s}, 'epoch': 0.5}}\n"
    f" 12%|\u2588  | {s}/100 [00:10<01:00,  1.2s/it]{{'eval_reward': {quote}{r}{quote}, "
    "'eval_runtime': 1.5, "
    f"'step': {s}, 'epoch': 0.5}}\n"
    for (s, r), quote in zip(PAIRS, ("", "'", "", "'"), strict=True)
)
NESTED = "".join(
    json.dumps({"step": s, "eval": {"math": {"acc": r}}, "train": {"reward": 0.9}}) + "\n"
    for s, r in PAIRS
)
PRINTED = "".join(
    json.dumps(
        {"step": s, "eval": {"math": {"acc": r}}, "printed": f"step:{s} - reward:0.9 - kl:0.1 end"}
    )
    + "\n"
    for s, r in PAIRS
)
"""JSON with a text that a console of verl could have printed."""
COLUMNS = json.dumps({"step": list(STEPS), "accuracy": list(RATES), "name": "x"})
FRAME = json.dumps({"step": dict(enumerate(STEPS)), "accuracy": dict(enumerate(RATES))})
INSIDE = json.dumps(
    {"config": {"lr": 1}, "history": [{"step": s, "val_accuracy": r} for s, r in PAIRS]}, indent=1
)
TABS = "step\taccuracy\n" + "".join(f"{s}\t{100 * r:.0f} %\n" for s, r in PAIRS)
GERMAN = "Schritt;step;accuracy\n" + "".join(
    f"n\u00e4chster;{s};{r}\n".replace(".", ",") for s, r in PAIRS
)
TIMES = "elapsed,accuracy\n" + "".join(f"{s // 60}:{s % 60:02}:00,{r}\n" for s, r in PAIRS)


@pytest.mark.parametrize(
    ("text", "read_as", "compute", "pass_rate"),
    [
        (PANEL, "W&B panel export", "Step", "eval/acc"),
        (RUN_EXPORT, "W&B run export", "_step", "eval/accuracy"),
        (OPENRLHF, "console log of OpenRLHF", "step", "eval_gsm8k_pass1"),
        (NEMO, "console log of NeMo-RL", "step", "validation/accuracy"),
        (PRIME, "console log of prime-rl", "step", "eval/aime2024/avg@8"),
        (PRIME_BESIDE, "console log of prime-rl", "step", "eval/aime2024/avg@8"),
        (
            _open_instruct_of_rich(),
            "console log of open-instruct",
            "training_step",
            "eval/verifiable_correct_rate",
        ),
        (
            OPEN_INSTRUCT,
            "console log of open-instruct",
            "training_step",
            "eval/verifiable_correct_rate",
        ),
        (TENSORBOARD_CSV, "CSV", "Step", "Value"),
        (TRL_CONSOLE, "console log of TRL or transformers", "step", "eval_reward"),
        (
            "[2026-01-01 10:00:00,123] [INFO] starting\n" + OPENRLHF,
            "console log of OpenRLHF",
            "step",
            "eval_gsm8k_pass1",
        ),
        (
            '{"model": "m", "lr": 1e-6}\n' + TRL_CONSOLE,
            "console log of TRL or transformers",
            "step",
            "eval_reward",
        ),
        (NESTED, "JSONL", "step", "eval/math/acc"),
        (PRINTED, "JSONL", "step", "eval/math/acc"),
        (COLUMNS, "JSON", "step", "accuracy"),
        (FRAME, "JSON", "step", "accuracy"),
        (INSIDE, "JSON", "step", "val_accuracy"),
        (TABS, "TSV", "step", "accuracy"),
        (GERMAN, "CSV with semicolons", "step", "accuracy"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
def test_a_log_is_read_without_a_flag_and_it_is_told_as_what(
    text: str, read_as: str, compute: str, pass_rate: str, encoding: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "log.txt"
    path.write_bytes(text.encode(encoding))
    history = read_history(str(path), Columns(), None)
    assert [(item.compute, round(item.pass_rate, 6)) for item in history.evaluations] == list(PAIRS)
    assert f"{path}: {read_as}: {pass_rate} over {compute} (steps)\n" in capsys.readouterr().err


def test_half_a_number_of_a_console_that_begins_as_json_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(
        "[2026-01-01 10:00:00] started\nstep:1 - acc:0.25 - kl:0.1\nstep:2 - acc:0.5 - kl:0.12"
    )
    sheet = read_sheet(str(path), pytest.fail, is_growing=True)
    assert sheet.texts("acc") == ["0.25"]


def test_latin_1_is_read_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(GERMAN.encode("latin-1"))
    assert len(read_history(str(path), Columns(), None).evaluations) == 4
    assert f"{path}: is not UTF-8, read as Latin-1\n" in capsys.readouterr().err


def test_a_panel_of_two_runs_is_two_curves(tmp_path: Path) -> None:
    path = tmp_path / "panel.csv"
    header = (
        '"Step","a - b - eval/acc","a - b - eval/acc__MIN","a - b - eval/acc__MAX","c - eval/acc"\n'
    )
    path.write_text(header + "".join(f"{s},{r},0,1,{'' if s == 20 else r / 2}\n" for s, r in PAIRS))
    found = [curve for _, curve in read_curves(str(path), Columns(), all_runs=True)]
    assert [(curve.name, len(curve)) for curve in found] == [("a - b", 4), ("c", 3)]
    with pytest.raises(UserError, match="choose one of a - b, c with --where run=NAME"):
        read_history(str(path), Columns(), None)
    assert len(read_history(str(path), Columns(), "c").evaluations) == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("step,eval/gsm8k/acc,eval/math/acc\n1,0.2,0.1\n2,0.3,0.2\n",
         "eval/gsm8k/acc, eval/math/acc could each be the pass rate; choose one with --pass-rate"),
        ("tokens,elapsed,accuracy\n1,5,0.2\n2,9,0.3\n",
         "elapsed, tokens could each be the compute; choose one with --compute"),
        ("step,loss\n1,0.2\n2,0.3\n", "name one of step, loss with --pass-rate"),
        ("step,gsm8k,math\n1,0.2,0.3\n2,0.3,0.2\n", "name one of gsm8k, math with --pass-rate"),
        ("a,b\n1,0.2\n", "name one of a, b with --pass-rate"),
        ("a,accuracy\n1,0.2\n", "name one of a, accuracy with --compute"),
        ("\x00\x01\x02\x03step,accuracy\n", "is not a text file"),
        ("[" * 100_000, "holds no JSON object"),
        ('{"a":' * 50_000 + "1" + "}" * 50_000, "holds no JSON object"),
        ("", "is empty"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_asked_in_one_sentence(
    text: str, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(UserError) as refused:
        read_history(str(path), Columns(), None)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_columns_that_agree_are_one_measure(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "step,eval_reward,eval_rewards/only/mean\n" + "".join(f"{s},{r},{r}\n" for s, r in PAIRS)
    )
    assert read_history(str(path), Columns(), None).origin.pass_rate == "eval_reward"


@pytest.mark.parametrize(
    ("text", "columns", "unit", "compute"),
    [
        (TIMES, Columns(), "seconds", [600.0, 1200.0, 1800.0, 2400.0]),
        (TIMES, Columns(seconds="elapsed", devices=6), "device-hours", [1.0, 2.0, 3.0, 4.0]),
        ("compute,accuracy\n" + "".join(f"{1795358835 + 60 * s},{r}\n" for s, r in PAIRS),
            Columns(), "seconds",
         [0.0, 600.0, 1200.0, 1800.0]),
        ("date,accuracy\n" + "".join(f"2026-01-01T00:{s}:00Z,{r}\n" for s, r in PAIRS), Columns(),
            "seconds",
         [0.0, 600.0, 1200.0, 1800.0]),
        ("num_tokens,accuracy\n" + "".join(f"{1.1e9 + s},{r}\n" for s, r in PAIRS), Columns(),
            "tokens",
         [1.1e9 + s for s in STEPS]),
        ("gpu_hours,accuracy\n" + "".join(f"{s},{r}\n" for s, r in PAIRS), Columns(), "GPU-hours",
            list(STEPS)),
        ("flops,accuracy\n" + "".join(f"{s},{r}\n" for s, r in PAIRS), Columns(compute="flops"),
            "units of flops",
         list(STEPS)),
    ],
)  # fmt: skip
def test_compute_says_its_unit_and_clocks_become_elapsed_time(
    text: str,
    columns: Columns,
    unit: str,
    compute: list[float],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    history = read_history(str(path), columns, None)
    assert history.origin.unit == make_curve(history)[1].unit == unit
    assert [item.compute for item in history.evaluations] == pytest.approx(compute)
    told = capsys.readouterr().err
    assert ("counted in seconds from the first of the run" in told) == (compute[0] == 0.0)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (Columns(seconds="elapsed"), "--seconds elapsed: needs --devices"),
        (Columns(devices=8), "--devices 8: needs --seconds"),
        (Columns(seconds="elapsed", devices=8, compute="elapsed"), "--compute is given too"),
        (Columns(seconds="elapsed", devices=-8), "--devices -8: give the number of devices"),
    ],
)
def test_seconds_and_devices_belong_together(
    columns: Columns, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(TIMES)
    with pytest.raises(UserError, match=sentence):
        read_history(str(path), columns, None)


def test_a_store_that_is_none_of_mlflows_is_one_sentence(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE a (b)")
    other.close()
    with pytest.raises(UserError, match=r"is not a SQLite store of MLflow \(no such table: runs\)"):
        read_history(str(path), Columns(), None)


def test_a_run_of_wandb_is_named_by_its_address() -> None:
    with pytest.raises(UserError, match="is not a run of W&B; write wandb:ENTITY/PROJECT/RUN"):
        read_history("wandb:here", Columns(), None)
