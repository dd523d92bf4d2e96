"""`rollcast fit` on files of other people."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rollcast.runfolder.records import BeforeRecord, as_json
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, LAW_PRIOR
from testkit.forecaster.recorded_run import record
from tests.cli.command import rollcast


def rollcast_fit(*arguments: object) -> subprocess.CompletedProcess[str]:
    return rollcast("fit", *arguments)


def write_csv(path: Path) -> None:
    rows = [f"{r.compute},{r.pass_rate},easy\n{r.compute},0.1,hard\n" for r in record()]
    path.write_text("hours,reward,suite\n" + "".join(rows))


def test_a_csv_with_its_own_column_names_gets_the_fit_of_the_library(tmp_path: Path) -> None:
    write_csv(tmp_path / "curve.csv")
    columns = ("--compute", "hours", "--pass-rate", "reward", "--where", "suite=easy")
    picture = tmp_path / "curve.svg"
    result = rollcast_fit(
        tmp_path / "curve.csv",
        *columns,
        "--initial",
        0.2,
        "--at",
        3,
        "--target",
        0.8,
        "--json",
        "--plot",
        picture,
    )
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    points = record()
    expected = fit(
        Curve.from_points([r.compute for r in points], [r.pass_rate for r in points]),
        FitOptions(initial=0.2),
    )
    assert answer["num_points"] == 30
    assert answer["asymptote"]["q50"] == pytest.approx(float(expected.asymptote((0.5,))[0]))
    assert answer["predictions"][0]["q95"] == pytest.approx(
        float(expected.predictive([3.0], (0.95,))[0, 0])
    )
    assert answer["targets"][0]["compute"]["q50"] == pytest.approx(
        float(expected.compute_to_target(0.8, (0.5,))[0])
    )
    assert picture.read_text().lstrip().startswith("<?xml")
    shown = rollcast_fit(tmp_path / "curve.csv", *columns)
    assert f"{answer['verdict'].replace('_', ' ')}: " in shown.stdout
    assert "asymptote A" in shown.stdout


def test_a_runs_own_evaluations_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    lines = [
        json.dumps({"step": r.step, "compute_device_hours": r.compute, "pass_rate": r.pass_rate})
        for r in record()
    ]
    path.write_text("\n".join(lines))
    result = rollcast_fit(path, "--json")
    assert result.returncode == 0, result.stderr
    assert abs(json.loads(result.stdout)["asymptote"]["q50"] - 0.85) < 0.03


def test_what_was_spent_before_a_run_stands_beside_its_curve(tmp_path: Path) -> None:
    lines = [
        json.dumps(
            {
                "incarnation": 1,
                "step": r.step,
                "compute_device_hours": r.compute,
                "pass_rate": r.pass_rate,
            }
        )
        for r in record()
    ]
    (tmp_path / "format.json").write_text('{"format": 1}')
    (tmp_path / "evaluations.jsonl").write_text("\n".join(lines) + "\n")
    before = as_json(BeforeRecord("runs/earlier", "1.40", 12.5))
    (tmp_path / "before.json").write_text(json.dumps(before))
    told = rollcast_fit(tmp_path).stdout.splitlines()
    assert (
        told[-1] == "before this run: 12.5 device-hours (runs/earlier, 1.40), no part of the curve"
    )
    answer = json.loads(rollcast_fit(tmp_path, "--json").stdout)
    assert answer["before"] == before
    assert answer["compute"] == record()[-1].compute


def test_the_advice_comes_first_and_its_price_is_that_of_the_device_hours(tmp_path: Path) -> None:
    write_csv(tmp_path / "curve.csv")
    asked = (
        "--compute",
        "hours",
        "--pass-rate",
        "reward",
        "--where",
        "suite=easy",
        "--worth",
        0.047,
        "--price",
        2.5,
    )
    spent = record()[-1].compute
    result = rollcast_fit(tmp_path / "curve.csv", *asked, "--budget", 3 * spent, "--json")
    assert result.returncode == 0, result.stderr
    advice = json.loads(result.stdout)["advice"]
    forecast = fit(
        Curve.from_points([r.compute for r in record()], [r.pass_rate for r in record()])
    )
    ends = forecast.predictive([3 * spent], [(place + 0.5) / 2000 for place in range(2000)])[:, 0]
    # A tenth of the 90 readings of the whole budget, but not more than a fifth of the 30 that there
    # are.
    level = forecast.curve.pass_rate[-6:].mean()
    assert (advice["budget"], advice["worth"], advice["is_assumed"]) == (
        pytest.approx(3 * spent),
        0.047,
        False,
    )
    assert advice["rest"]["compute"] == pytest.approx(2 * spent)
    assert advice["rest"]["money"] == pytest.approx(5.0 * spent)
    assert advice["soon"]["compute"] == pytest.approx(0.3 * spent)
    assert advice["chance"] == pytest.approx(float((ends - level >= 0.047).mean()), abs=0.03)
    assert 0.1 < advice["chance"] < 0.9, "a chance that is near 0 or 1 would be right by itself"
    shown = rollcast_fit(tmp_path / "curve.csv", *asked, "--budget", 3 * spent).stdout.splitlines()
    assert shown[0] == f"{advice['headline']}. {advice['reason']}"
    assert shown[1] == advice["change"]


@pytest.mark.parametrize(
    ("content", "arguments", "sentence"),
    [
        (None, (), "cannot be read"),
        ("a,b\n1,2\n", (), "none of the columns pass_rate"),
        ("compute,pass_rate\n1,x\n", (), "column pass_rate holds 'x', needs a number"),
        ("compute,pass_rate\n1,45\n", (), "if it is per cent, add --scale 0.01"),
        ("compute,pass_rate\n1,0.5\n", ("--where", "a"), "--where a: needs COLUMN=VALUE"),
        ("compute,pass_rate\n1,0.5\n", ("--where", "a=b"), "no row is left"),
        ("compute,pass_rate\n1,0.5\n", ("--plot", "x.pdf"), "choose one of these endings"),
        ("compute,pass_rate\n1,0.5\n", ("--at", "-1"), "--at: device-hours must be in"),
        (
            "compute,pass_rate\n1,0.5\n",
            ("--budget", "-1"),
            "--budget: -1 is no compute; give a value in (0, 1e12]",
        ),
        (
            "compute,pass_rate\n1,0.5\n",
            ("--worth", "2"),
            "--worth: 2 is no gain in pass rate; give a value in [0, 1]",
        ),
        (
            "compute,pass_rate\n1,0.5\n",
            ("--price", "nan"),
            "--price: nan is no price of a device-hour",
        ),
        (
            "compute,pass_rate\n1,0.5\n",
            ("--plot", "nowhere/x.png"),
            "there is no folder nowhere; make it or choose",
        ),
        ("compute,pass_rate\n1,0.5\n", ("--initial", "7"), "give a value in [0, 1]"),
        (
            "compute,pass_rate\n1,0.5\n2,0.6\n",
            ("--initial", "0.9"),
            "initial: 0.9 is not below the highest reading",
        ),
        ("compute,pass_rate\n1,0.5\n", ("--standard-error", "error"), "no column 'error'"),
        ("compute,pass_rate\n1,0.5\n", ("--truncation-ratio", "cut"), "no column 'cut'"),
        (
            'compute,pass_rate\n1,"0,53"\n2,"0,6"\n',
            (),
            (
                "column pass_rate holds '0,53', needs a number, as 0.53: a decimal point, and "
                "nothing between thousands"
            ),
        ),
        (
            "compute;pass_rate\n1,234;53\n2,345;54\n",
            ("--scale", "0.01"),
            "column compute holds '1,234', needs a number",
        ),
        (
            "compute;pass_rate\n1,500;0.5\n2,500;0.6\n",
            (),
            "column compute holds '1,500', needs a number",
        ),
        (
            "run,compute,pass_rate\na,1,0.5\nb,2,0.6\n",
            (),
            "choose one of a, b with --where run=NAME",
        ),
        (
            "compute,suite,pass_rate\n"
            + "".join(f"{c},{s},0.5\n" for c in (1, 2, 3) for s in ("easy", "hard")),
            (),
            "choose one of easy, hard with --where suite=VALUE",
        ),
        ('{"compute": 1}\nnonsense\n', (), "line 2 is not a JSON object"),
        ("[1, 2]", (), "holds no JSON object; write one for each evaluation"),
        (
            "compute,pass_rate,pass_rate\n1,0.5,0.6\n",
            (),
            "two columns are called 'pass_rate'; rename one of them",
        ),
        (
            "compute,pass_rate\n1,0.5\n",
            ("--run", "a", "--run", "b"),
            "--run: is given 2 times; give it once",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    tmp_path: Path, content: str | None, arguments: tuple[str, ...], sentence: str
) -> None:
    path = tmp_path / "curve.csv"
    if content is not None:
        path.write_text(content)
    result = rollcast_fit(path, *arguments)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_without_an_end_is_one_sentence() -> None:
    result = rollcast_fit("/dev/zero")
    assert result.returncode == 2
    assert "/dev/zero: larger than 64 MiB" in result.stderr


def test_a_file_of_a_spreadsheet_is_read_like_any_other(tmp_path: Path) -> None:
    """Byte-order mark, spaces around headings, a row that is too long, one that is too short, an
    empty one.
    """
    rows = [f"{r.compute}, {r.pass_rate}" for r in record()]
    plain, marked = tmp_path / "plain.csv", tmp_path / "marked.csv"
    plain.write_text("\n".join(["compute,pass_rate", *rows]))
    marked.write_text(
        "\n".join(["\ufeffcompute, pass_rate ", "7", "", f"{rows[0]},seen,twice", *rows[1:]])
    )
    answers = [json.loads(rollcast_fit(path, "--json").stdout) for path in (plain, marked)]
    assert answers[0].pop("curve") != answers[1].pop("curve")
    assert answers[0] == answers[1]


def test_a_log_in_which_evaluations_are_rare_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [
        row
        for r in record()
        for row in ({"step": r.step}, {"compute": r.compute, "pass_rate": r.pass_rate})
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    result = rollcast_fit(path, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["num_points"] == len(record())


@pytest.mark.parametrize("arguments", [(), ("--truncation-ratio", "cut")])
def test_the_verdict_heeds_the_truncation_of_a_file(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    points = record()
    column = "cut" if arguments else "truncation_rate"
    for late, expected in ((0.0, False), (0.4, True)):
        rows = [
            f"{r.compute},{r.pass_rate},{late if n > len(points) * 0.6 else 0.0}"
            for n, r in enumerate(points)
        ]
        path = tmp_path / "curve.csv"
        path.write_text("\n".join([f"compute,pass_rate,{column}", *rows]))
        result = rollcast_fit(path, "--json", *arguments)
        assert result.returncode == 0, result.stderr
        answer = json.loads(result.stdout)
        assert (
            answer["verdict"] == "regime_change" and "truncated" in answer["reason"]
        ) is expected


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--pass-rate", "reward"), "--compute, --pass-rate: of a Prometheus give both"),
        (("--where", "a=b"), "put matchers into the expressions instead"),
        (("--pass-rate", "a", "--compute", "b", "--run", "a/b"), "--run a/b: not a name for a run"),
    ],
)
def test_what_a_prometheus_cannot_be_asked_is_one_sentence(
    arguments: tuple[str, ...], sentence: str
) -> None:
    result = rollcast_fit("http://127.0.0.1:9", *arguments)
    assert result.returncode == 2
    assert sentence in result.stderr


def test_a_prometheus_that_is_away_is_one_sentence() -> None:
    result = rollcast_fit("http://127.0.0.1:9")
    assert result.returncode == 2
    assert "give the address of a Prometheus server" in result.stderr


@pytest.mark.parametrize("option", ["--law-alone", "--prior"])
def test_another_prior_gives_the_fit_of_the_library_under_it(tmp_path: Path, option: str) -> None:
    write_csv(tmp_path / "curve.csv")
    columns = (
        "--compute",
        "hours",
        "--pass-rate",
        "reward",
        "--where",
        "suite=easy",
        "--at",
        3,
        "--json",
    )
    prior, words = LAW_PRIOR, [option]
    if option == "--prior":
        (tmp_path / "prior.json").write_text(
            '{"learned_from": ["a"], "prior": {"tail_weight": 0.9, "turn_rate": 0.5}}'
        )
        prior, words = (
            replace(DEFAULT_PRIOR, tail_weight=0.9, turn_rate=0.5),
            [option, str(tmp_path / "prior.json")],
        )
    result = rollcast_fit(tmp_path / "curve.csv", *columns, *words)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    points = record()
    expected = fit(
        Curve.from_points([r.compute for r in points], [r.pass_rate for r in points]),
        FitOptions(prior=prior),
    )
    low, high = expected.predictive([3.0], (0.05, 0.95))[:, 0]
    assert answer["predictions"][0]["q05"] == pytest.approx(float(low), abs=1e-9)
    assert answer["predictions"][0]["q95"] == pytest.approx(float(high), abs=1e-9)
    assert answer["ceiling_probability"] == pytest.approx(expected.ceiling_probability)
    plain = json.loads(rollcast_fit(tmp_path / "curve.csv", *columns).stdout)
    assert abs(plain["predictions"][0]["q95"] - answer["predictions"][0]["q95"]) > 1e-3, (
        "the option must matter"
    )


@pytest.mark.parametrize(
    ("content", "more", "sentence"),
    [
        (
            None,
            (),
            (
                "prior.json: cannot be read (No such file or directory); give a file that holds a "
                "prior."
            ),
        ),
        ("[]", (), 'prior.json: is no prior; give a JSON file {"prior": {..}} of fields of Prior.'),
        (
            '{"prior": {"tail": 1}}',
            (),
            "prior.json: prior.tail is no field of a prior; those are asymptote, ",
        ),
        (
            '{"prior": {"tail_weight": 2}}',
            (),
            "prior.json: prior.tail_weight 2: give a probability.",
        ),
        (
            '{"prior": {}}',
            ("--law-alone",),
            "--law-alone, --prior: each is a prior; give one of the two",
        ),
    ],
)
def test_what_is_no_prior_is_one_sentence_and_exit_code_2(
    tmp_path: Path, content: str | None, more: tuple[str, ...], sentence: str
) -> None:
    write_csv(tmp_path / "curve.csv")
    path = tmp_path / "prior.json"
    if content is not None:
        path.write_text(content)
    result = rollcast_fit(tmp_path / "curve.csv", "--where", "suite=easy", "--prior", path, *more)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
