"""The paper's experiments, on tensors of a few thousand entries: end to end, killed, resumed, capped."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorly", reason="experiments and their peers need the extra `paper`")

from typer.testing import CliRunner

import tucket as tk
from experiments.paper import plan, run, study
from experiments.paper.__main__ import app
from experiments.paper.findings import TABLES, findings
from experiments.paper.plan import METHODS, PANELS, Panel, Point, Run
from experiments.paper.rows import Rows

TINY = Panel("b", "uniform", "tiny", "entries", tuple(Point((n, n, n), (2, 2, 2)) for n in (6, 8)))


def runs_of(*names: str, repetitions: int = 2, panel: Panel = TINY) -> list[Run]:
    return [each for each in plan.plan([panel], repetitions, ("one",)) if not names or each.method.name in names]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Every method at both points, on one core and on all."""
    rows = Rows(tmp_path_factory.mktemp("paper") / "rows.csv")
    run.carry_out(list(plan.plan([TINY], 3)), rows, 60)
    return rows


def test_the_plan_is_the_papers() -> None:
    by_name = {panel.name: panel for panel in PANELS}
    assert [panel.name for panel in plan.panels_of("a")] == ["a5", "a3"]
    assert [point.rank for point in by_name["a5"].points] == [(r,) * 5 for r in range(2, 16)]
    assert [point.rank for point in by_name["a3"].points] == [(r,) * 3 for r in range(2, 29)]
    assert [point.shape[0] for point in by_name["b"].points] == [30, 50, 60, 80, 100, 120, 150, 200, 300, 400, 500]
    assert [point.rank for point in by_name["c"].points][-2:] == [(3, 3, 60, 60, 1), (3, 3, 80, 80, 1)]
    assert [point.rank[0] for point in by_name["d"].points] == [1, 3, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80]
    assert [len(by_name[name].points) for name in ("c", "d")] == [12, 12]
    one = [each for each in plan.plan([by_name["d"]]) if each.cores == "one" and each.point.rank[0] == 10]
    assert {m.name: sum(each.method == m for each in one) for m in METHODS}["ltr-random"] == 20


def test_every_method_runs_and_its_errors_are_right(finished: Rows) -> None:
    point = TINY.points[1]
    x = np.random.default_rng(0).random(point.shape)
    for method in METHODS:
        for cores in ("one", "all"):
            row = finished.get(Run(TINY, point, method, 0, cores))
            assert row is not None, method
            assert row["status"] == "done", row["note"]
            assert 0 < row["fit_seconds"] <= row["seconds"]
    seeds: dict[str, dict[str, Any]] = {
        "ltr-published": {"blocks": "random", "variant": "published", "rng": 1},
        "ltr-random": {"blocks": "random", "rng": 1},
        "ltr-segments": {"blocks": "segments"},
    }
    for name, options in seeds.items():
        method = next(each for each in METHODS if each.name == name)
        row = finished.get(Run(TINY, point, method, 1, "one"))
        dense = tk.ltr(x, point.rank, **options).to_tensor()
        assert row is not None
        assert row["ls"] == pytest.approx(np.linalg.norm(x - dense))
        assert row["relative_ls"] == pytest.approx(np.linalg.norm(x - dense) / np.linalg.norm(x))
        assert row["kl"] == pytest.approx((x * np.log(x / dense) - x + dense).sum())
        assert row["kl_per_total"] == pytest.approx(row["kl"] / x.sum())


def test_rows_say_what_made_them(finished: Rows) -> None:
    with finished.path.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(finished.held)
    assert {(row["tucket"], row["numpy"], row["cap"]) for row in rows} == {(tk.__version__, np.__version__, "60.0")}
    assert all(row["machine"] and row["date"] for row in rows)
    assert len({tuple(row[name] for name in ("shape", "method", "repetition", "cores")) for row in rows}) == len(rows)


def test_methods_that_are_not_random_are_not(finished: Rows) -> None:
    for method in METHODS:
        found = {row["ls"] for row in finished.of(method=method.name, shape="8x8x8", cores="one")}
        assert (len(found) > 1) == method.is_random, method


def test_nothing_is_run_twice(finished: Rows) -> None:
    before = finished.path.read_bytes()
    run.carry_out(list(plan.plan([TINY], 3)), Rows(finished.path), 60)
    assert finished.path.read_bytes() == before


def test_figures_and_findings(finished: Rows, tmp_path: Path) -> None:
    study.summarise([TINY], finished, tmp_path)
    for name in ("b.png", "b.svg", "b-all-cores.png", "b-all-cores.svg"):
        assert (tmp_path / name).stat().st_size > 10_000
    drawn = (tmp_path / "b.svg").read_text()
    assert all(method.label in drawn for method in METHODS)
    study.summarise([TINY], finished, tmp_path)
    assert (tmp_path / "b.svg").read_text() == drawn
    text = (tmp_path / "findings.md").read_text()
    assert all(title in text for title, _ in TABLES.values())
    assert "| b | LTR, random blocks | 0 of 0" not in text


def test_findings_are_computed_from_the_rows(tmp_path: Path) -> None:
    panel = next(panel for panel in PANELS if panel.name == "b")
    rows = Rows(tmp_path / "rows.csv")
    for number, point in enumerate(panel.points):
        entries = float(np.prod(point.shape))
        for method in METHODS:
            slow = 1.0 if method.is_ltr else 4.0 if number else 0.5
            seconds = slow * entries / 1e9
            errors = {"ls": 2.0 if method.is_ltr else 1.0, "relative_ls": 0.1, "kl": 1.0, "kl_per_total": 0.1}
            rows.add(
                Run(panel, point, method, 0, "one"),
                {"status": "done", "seconds": seconds, "fit_seconds": entries**0.5, **errors},
                60,
            )
    speed, ls, kl, growth = (TABLES[name][1](rows) for name in ("speed", "ls", "kl", "growth"))
    assert "| b | LTR, random blocks | 10 of 11 | 4 | 0.5 | n = 30 |" in speed
    assert "| b | LTR, clusters | 0 of 11 | 0 of 11 | 2.00 | 2.00 (n = 30) | 2.00 (n = 30) |" in ls
    assert "| b | LTR, clusters | 11 of 11 | 11 of 11 | 1.00 |" in kl
    assert "| TensorLy | 500 | 1.1" in growth
    assert "| 1.00 | 0.50 |" in growth
    assert findings(Rows(rows.path)) == findings(rows)


def test_the_port_is_compared_in_standard_errors(tmp_path: Path) -> None:
    panel = next(panel for panel in PANELS if panel.name == "d")
    rows = Rows(tmp_path / "rows.csv")
    point = next(point for point in panel.points if point.rank[0] == 40)
    for repetition in range(20):
        ls = 63465 + (100 if repetition % 2 else -100) + 5000
        result = {
            "status": "done",
            "seconds": 1.0,
            "fit_seconds": 1.0,
            "ls": ls,
            "relative_ls": 0.1,
            "kl": 1,
            "kl_per_total": 1,
        }
        rows.add(Run(panel, point, METHODS[1], repetition, "one"), result, 60)
    assert "| 40 | LTR, random blocks | 63465 | 68465 | 103 |" in TABLES["port"][1](rows)
    assert TABLES["port"][1](rows).endswith("| no |")


def test_a_cap_ends_a_run_and_leaves_larger_ones_out(tmp_path: Path) -> None:
    panel = Panel("b", "uniform", "slow", "entries", tuple(Point((n, n, n), (9, 9, 9)) for n in (90, 100)))
    rows = Rows(tmp_path / "rows.csv")
    runs = runs_of("tensorly-hals", "ltr-random", repetitions=1, panel=panel)
    run.carry_out(runs, rows, 0.3)
    statuses = [(rows.get(each) or {})["status"] for each in runs]
    assert statuses == ["done", "over", "done", "left out"]
    study.summarise([panel], rows, tmp_path)
    run.carry_out(runs, Rows(rows.path), 0.4)  # more time: what was over is tried again, and what is done is not
    again = Rows(rows.path)
    assert [(again.get(each) or {})["cap"] for each in runs] == ["0.3", "0.4", "0.3", "0.4"]


def test_what_fails_is_a_row(tmp_path: Path) -> None:
    panel = Panel("b", "uniform", "wrong", "entries", (Point((4, 4, 4), (5, 5, 5)),))
    rows = Rows(tmp_path / "rows.csv")
    (one,) = runs_of("ltr-uniform", repetitions=1, panel=panel)
    run.carry_out([one], rows, 60)
    row = rows.get(one)
    assert row is not None
    assert row["status"] == "failed"
    assert "rank" in row["note"]
    run.carry_out([one], rows, 60)  # it is tried again
    assert rows.path.read_text().count("failed") == 2


def test_what_did_not_end_is_told(tmp_path: Path) -> None:
    panel = next(panel for panel in PANELS if panel.name == "b")
    rows = Rows(tmp_path / "rows.csv")
    for point, status in zip(panel.points, ("failed", "over", "left out")):
        rows.add(Run(panel, point, METHODS[-1], 0, "one"), {"status": status, "note": f"it was {status}"}, 60)
    assert "| b | one | TensorLy, HALS | n = 30 | 3 | it was failed |" in TABLES["left-out"][1](rows)
    assert all(text in TABLES["all-ls"][1](rows) for text in ("| failed |", "| over the cap |", "| left out |"))
    assert TABLES["speed"][1](rows) == "Nothing to show."


KILLED = """
import sys
from pathlib import Path
sys.path[:0] = [{tests!r}]
from test_paper import TINY
from experiments.paper import plan, run
from experiments.paper.rows import Rows
if __name__ == "__main__":
    run.carry_out(list(plan.plan([TINY], 6, ("one",))), Rows(Path({rows!r})), 60)
"""


def test_killed_and_resumed(tmp_path: Path) -> None:
    path, script = tmp_path / "rows.csv", tmp_path / "script.py"
    script.write_text(KILLED.format(tests=str(Path(__file__).parent), rows=str(path)))
    with subprocess.Popen([sys.executable, str(script)]) as process:
        deadline = time.monotonic() + 120
        while not (path.exists() and path.read_bytes().count(b"\n") > 4):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    with path.open("ab") as file:
        file.write(b"b,8x8x8,2x2x2,ltr-clus")  # the kill came in the midst of a line
    before = path.read_bytes().split(b"\n")[:-1]
    runs = list(plan.plan([TINY], 6, ("one",)))
    assert 4 <= len(before) - 1 < len(runs)
    run.carry_out(runs, Rows(path), 60)
    after = path.read_bytes().split(b"\n")
    assert after[: len(before)] == before
    assert after[-1] == b""
    rows = Rows(path)
    assert len(rows.held) == len(after) - 2
    assert {row["status"] for row in rows.held.values()} == {"done"}
    assert all(rows.get(each) for each in runs if each.method.is_random)


def test_a_process_that_dies_is_a_row_and_the_next_goes_on(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows.csv")
    first, second = runs_of("ltr-random", repetitions=1)
    with run.Process() as process:
        process.start("one")
        os.kill(process.process.pid, signal.SIGKILL)
        result = process.carry_out(first, 60)
        assert result["status"] == "failed"
        assert "ended with -9" in result["note"]
        rows.add(second, process.carry_out(second, 60), 60)
    assert (rows.get(second) or {})["status"] == "done"


def test_nobody_is_left_behind(tmp_path: Path) -> None:
    """A process whose parent is killed ends too, in the midst of a run that would take minutes."""
    path, script = tmp_path / "pid", tmp_path / "script.py"
    slow = Panel("b", "uniform", "slow", "entries", (Point((300, 300, 300), (20, 20, 20)),))
    script.write_text(LEFT.format(panel=slow, path=str(path)))
    with subprocess.Popen([sys.executable, str(script)]) as process:
        deadline = time.monotonic() + 60
        while not (path.exists() and path.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    child = int(path.read_text())
    while Path(f"/proc/{child}").exists() and "State:\tZ" not in Path(f"/proc/{child}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)


LEFT = """
from pathlib import Path
from experiments.paper.plan import METHODS, Panel, Point, Run
from experiments.paper.run import Process
if __name__ == "__main__":
    panel = {panel!r}
    process = Process()
    connection = process.start("one")
    connection.send(Run(panel, panel.points[0], METHODS[-1], 0, "one"))
    assert connection.recv() == "begins"
    Path({path!r}).write_text(str(process.process.pid))
    connection.recv()
"""


def test_two_runs_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "panels_of", lambda _: [TINY])
    with study.locked(tmp_path), pytest.raises(RuntimeError, match="another process is at work"):
        study.study("b", tmp_path, quiet=True)
    assert not (tmp_path / "rows.csv").exists()


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="no file of the paper's experiments"):
        Rows(tmp_path / "rows.csv")


def test_damaged_rows_are_told(finished: Rows, tmp_path: Path) -> None:
    lines = finished.path.read_text().splitlines(keepends=True)
    (tmp_path / "rows.csv").write_text("".join([*lines[:3], lines[3].replace("done,", "done,much"), *lines[4:]]))
    with pytest.raises(ValueError, match=r"rows\.csv, line 4: cannot be read"):
        Rows(tmp_path / "rows.csv")


def test_rows_say_what_they_were_measured_with(finished: Rows) -> None:
    (line,) = finished.contexts()
    assert line.startswith(f"{len(finished.held):,} rows: ")
    assert f"tucket {tk.__version__}, numpy {np.__version__}" in line


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "panels_of", lambda _: [TINY])
    result = CliRunner().invoke(app, ["b", "--quick", "-o", str(tmp_path / "p"), "--repetitions", "1"])
    assert result.exit_code == 0, result.output
    assert "24 rows" in result.output
    assert {path.name for path in (tmp_path / "p").iterdir()} == {".lock", "rows.csv", "b.png", "b.svg", "findings.md"}


def test_command_on_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUCKET_DATA", raising=False)
    for options, message in (
        (["d", "--data", str(tmp_path)], f"attface: there is no {tmp_path}"),
        (["d"], "attface: no path was given"),
        (["d", "--data", str(tmp_path / "none")], "--data: there is no folder"),
        (["b", "--cap", "0"], "--cap: got 0"),
        (["b", "--cap", "inf"], "--cap: got inf"),
        (["b", "--repetitions", "0"], "--repetitions: got 0"),
    ):
        result = CliRunner().invoke(app, [*options, "-o", str(tmp_path / "p")])
        assert isinstance(result.exception, (OSError, ValueError))
        assert message in str(result.exception)
        monkeypatch.delenv("TUCKET_DATA", raising=False)
    assert not (tmp_path / "p").exists()
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["b", "-o", str(tmp_path / "file")])
    assert "is no folder" in str(result.exception)
