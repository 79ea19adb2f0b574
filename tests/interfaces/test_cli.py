"""The installed program, run as users run it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tucket as tk
from program import run, watch


def test_version(tmp_path: Path) -> None:
    assert run("--version", cwd=tmp_path).stdout == f"tucket {tk.__version__}\n"
    module = subprocess.run([sys.executable, "-m", "tucket", "--version"], capture_output=True, text=True, check=False)
    assert module.stdout == f"tucket {tk.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("dance",), ("demo", "--rank", "3")])
def test_wrong_usage_exits_with_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Usage: tucket" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_demo(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    datasets = pytest.importorskip("sklearn.datasets")
    done = run("demo", "-o", "new/picture.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    picture = tmp_path / "new" / "picture.png"
    assert f"side by side: {picture.resolve()}\n" in done.stdout
    page = picture.with_suffix(".html")
    assert done.stdout.endswith(f"{page.resolve()}\n")
    assert "Two photographs" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = re.findall(
        r"^(2 x [\d x]+?) +(published|projection) +(random|uniform|segments) .* (0\.\d{4}) ", done.stdout, re.M
    )
    assert len(rows) == 16
    rank, *way, error = rows[-1]
    photographs = np.stack(datasets.load_sample_images().images)
    model = tk.ltr(photographs, [int(r) for r in rank.split(" x ")], blocks="segments")
    assert way == ["projection", "segments"]
    assert error == f"{model.relative_error(photographs):.4f}"


def test_demo_prints_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("demo", "-o", "file/picture.png", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("tucket: ")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def counts(tmp_path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    x = np.random.default_rng(0).poisson(2.0, (12, 10, 8))
    np.save(tmp_path / "x.npy", x)
    return x


def test_reduce(tmp_path: Path, counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
    done = run("reduce", "x.npy", "--rank", "3,-,2", "--blocks", "segments", "-o", "model.npz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^saved +model.npz$", done.stdout, re.M)
    assert done.stderr == ""
    assert tk.load(tmp_path / "model.npz") == tk.ltr(counts, (3, None, 2), blocks="segments")
    quiet = run("reduce", "x.npy", "--rank", "3", "-o", "model.npz", "-q", cwd=tmp_path)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


def test_collect_and_merge(tmp_path: Path, counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
    """Nightly jobs: each saves its part, and the merged parts are the statistics of the whole."""
    for night, part in enumerate(np.split(counts, [5, 9])):
        np.save(tmp_path / f"{night}.npy", part)
        done = run("collect", f"{night}.npy", "--rank", "-,4,3", "-o", f"{night}.npz", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    done = run("merge", "0.npz", "1.npz", "2.npz", "--along", "0", "-o", "all.npz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    whole = tk.collect(counts, (None, 4, 3), moments=True)
    merged = tk.Statistics.load(tmp_path / "all.npz")
    np.testing.assert_allclose(merged.core, whole.core)
    np.testing.assert_allclose(merged.moments, whole.moments)  # type: ignore[arg-type]
    done = run("merge", "all.npz", "all.npz", "-o", "twice.npz", cwd=tmp_path)
    assert tk.Statistics.load(tmp_path / "twice.npz").total == 2 * counts.sum()


def test_collect_a_table(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "rows.csv").write_text("user,item\nann,x\nbob,y\nann,y\n")
    done = run("collect", "rows.csv", "--modes", "user,item", "--rank", "user=1", "-o", "rows.npz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert tk.Statistics.load(tmp_path / "rows.npz").core.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("reduce", "none.npy", "--rank", "2", "-o", "m.npz"), 1, "tucket: there is no file none.npy"),
        (("reduce", "x.npy", "--rank", "99,1,1", "-o", "m.npz"), 1, "mode 0: rank 99 is larger than its size 12"),
        (("reduce", "x.npy", "--rank", "2", "-o", "no/m.npz"), 1, "cannot write no/m.npz: there is no folder"),
        (("reduce", "x.npy", "--rank", "2", "-o", "."), 1, "cannot write .: it is a folder"),
        (
            ("reduce", "x.npy", "--rank", "two", "-o", "m.npz"),
            2,
            "Invalid value for --rank: 'two' is not a whole number",
        ),
        (("reduce", "x.npy", "-o", "m.npz"), 2, "--rank"),
        (("reduce", "x.npy", "--rank", "user=2", "-o", "m.npz"), 1, "rank: mode 'user': the modes have no names"),
        (("reduce", "x.npy", "--rank", "2", "--blocks", "tall", "-o", "m.npz"), 1, "blocks: unknown 'tall'"),
        (("reduce", "x.txt", "--rank", "2", "-o", "m.npz"), 1, "unknown file format '.txt'; give one of .npy"),
        (("reduce", "bad.npy", "--rank", "2", "-o", "m.npz"), 1, "x[1, 0] is -1.0; every entry"),
        (("reduce", "rows.csv", "--rank", "2", "-o", "m.npz"), 1, "say which of them are modes"),
        (("collect", "rows.csv", "--modes", "a", "--bins", "a", "--rank", "2", "-o", "m.npz"), 2, "as in time=1h"),
        (("merge", "x.npy", "-o", "m.npz"), 1, "x.npy is not a tucket file"),
        (("merge", "-o", "m.npz"), 2, "Missing argument"),
    ],
)
@pytest.mark.usefixtures("counts")
def test_an_error_prints_one_line(tmp_path: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    if "rows.csv" in arguments:
        pytest.importorskip("pyarrow")
    (tmp_path / "x.txt").touch()
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    np.save(tmp_path / "bad.npy", np.array([[1.0, 2.0], [-1.0, 0.0]]))
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert code == 2 or done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*m.npz*"))
    assert not list(tmp_path.glob(".*"))


def test_debug_shows_a_traceback(tmp_path: Path) -> None:
    done = run("--debug", "reduce", "none.npy", "--rank", "2", "-o", "m.npz", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("reduce", "long.npy", "--blocks", "uniform"), (b"pass 1", b"error: pass 1", b"MB")),
        (("fit", "short.npy", "--method", "ntd"), (b"iteration ",)),
    ],
)
def test_a_terminal_shows_progress(tmp_path: Path, arguments: tuple[str, ...], shown: tuple[bytes, ...]) -> None:
    np.save(tmp_path / "long.npy", np.ones((64, 1 << 18)))
    np.save(tmp_path / "short.npy", np.add.outer(np.arange(200.0), np.arange(300.0)))
    output = watch(*arguments, "--rank", "8", "-o", "m.npz", cwd=tmp_path)
    assert [part for part in shown if part not in output] == []


Counts = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def test_reduce_in_other_ways(tmp_path: Path, counts: Counts) -> None:
    ways: dict[tuple[str, ...], Any] = {
        ("--rank", "3", "--variant", "published", "--seed", "1"): tk.ltr(counts, 3, variant="published", rng=1),
        ("--retain", "0.4"): tk.ltr(counts, retain=0.4),
        ("--max-parameters", "200"): tk.ltr(counts, max_parameters=200),
        ("--rank", "3", "--blocks", "segments,uniform,clusters"): tk.ltr(
            counts, 3, blocks=("segments", "uniform", "clusters")
        ),
    }
    for arguments, expected in ways.items():
        done = run("reduce", "x.npy", *arguments, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        assert facts["saved"] == "x.model.npz"
        assert facts["rank"] == list(expected.rank)
        assert tk.load(tmp_path / "x.model.npz") == expected


def test_fit_is_reduce(tmp_path: Path, counts: Counts) -> None:
    """The same model, its distance from the data, and the share of information that it keeps."""
    facts = []
    for command in ("fit", "reduce"):
        done = run(command, "x.npy", "--rank", "3", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        facts.append({**json.loads(done.stdout), "seconds": None})
    assert facts[0] == facts[1]
    model = tk.ltr(counts, 3)
    kl = model.kl(counts) / counts.sum()
    assert facts[0]["kl_over_sum"] == pytest.approx(kl)
    assert facts[0]["information_kept"] == pytest.approx(1 - kl / tk.metrics.total_correlation(counts))
    assert re.search(rf"^KL / sum +{kl:.5f}\n", run("fit", "x.npy", "--rank", "3", cwd=tmp_path).stdout, re.M)
    published = run("fit", "x.npy", "--rank", "3", "--variant", "published", "--json", cwd=tmp_path)
    assert "information_kept" not in json.loads(published.stdout)
    np.save(tmp_path / "zeros.npy", np.zeros((3, 4)))
    zeros = json.loads(run("fit", "zeros.npy", "--rank", "2", "--json", cwd=tmp_path).stdout)
    assert (zeros["kl_over_sum"], zeros["information_kept"]) == (0, 1)


def test_fit_by_iteration(tmp_path: Path, counts: Counts) -> None:
    done = run("fit", "x.npy", "--method", "ntd", "--rank", "3,-,2", "--loss", "ls", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts, fit = json.loads(done.stdout), tk.ntd(counts, (3, None, 2), loss="ls")
    assert tk.load(tmp_path / "x.model.npz") == fit.model
    assert facts["relative_error"] == pytest.approx(fit.loss)
    assert facts["kl_over_sum"] == pytest.approx(fit.model.kl(counts) / counts.sum())
    assert (facts["iterations"], facts["stopped"]) == (len(fit.trace), "converged")
    done = run("fit", "x.npy", "--method", "ntd", "--init", "x.model.npz", "--n-iter-max", "2", cwd=tmp_path)
    assert re.search(r"^rank +3 x 10 x 2\n", done.stdout, re.M), done.stderr
    assert float(re.findall(r"^KL / sum +(.*)$", done.stdout, re.M)[0]) < facts["kl_over_sum"]
    np.savez(tmp_path / "named.npz", tensor=counts, mode_names=["user", "item", "hour"])
    options = ("--rank", "user=2,hour=3", "--budget", "1e-6", "--tol", "1e-3", "--seed", "1", "-o", "m.npz")
    done = run("fit", "named.npz", "--method", "ntd", *options, cwd=tmp_path)
    assert re.search(r"^modes +user, item, hour\n[^$]*^stopped +budget\n", done.stdout, re.M), done.stderr
    assert tk.load(tmp_path / "m.npz").rank == (2, 10, 3)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--method", "ntd", "--blocks", "uniform"), 2, "--blocks: only --method ltr has it; leave it out"),
        (("--method", "ntd", "--max-parameters", "9"), 2, "--max-parameters: only --method ltr has it; leave it out"),
        (("--loss", "kl", "--budget", "9"), 2, "--loss, --budget: only --method ntd has it; leave it out"),
        (("--method", "nmf"), 2, "'nmf'"),
        (("--method", "ntd", "--init", "best"), 1, "init: unknown 'best'"),
        (("--method", "ntd", "--budget", "0"), 1, "budget: got 0.0; give a number of seconds above 0"),
    ],
)
@pytest.mark.usefixtures("counts")
def test_options_of_the_other_method(tmp_path: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = run("fit", "x.npy", "--rank", "2", "-o", "m.npz", *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "m.npz").exists()


def test_iterations_of_sparse_files(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    (tmp_path / "x.tns").write_text("1 1 3.0\n2 4 1.0\n")
    for loss in ("kl", "ls"):
        done = run("fit", "x.tns", "--method", "ntd", "--rank", "2", "--loss", loss, "--json", cwd=tmp_path)
        facts = json.loads(done.stdout)
        assert (facts["rank"], facts["kl_over_sum"] < 1e-3) == ([2, 2], True)


def test_info_and_expand(tmp_path: Path, counts: Counts) -> None:
    model = tk.ltr(counts, (3, 2, 2))
    model.save(tmp_path / "model.npz")
    tk.collect(counts, 2, moments=True).save(tmp_path / "stats.npz")
    facts = json.loads(run("info", "model.npz", "--json", cwd=tmp_path).stdout)
    assert (facts["kind"], facts["rank"], facts["parameters"]) == ("BlockTucker", [3, 2, 2], model.n_parameters)
    assert facts["bytes"] == (tmp_path / "model.npz").stat().st_size
    assert re.search(r"^rank +2 x 2 x 2$", run("info", "stats.npz", cwd=tmp_path).stdout, re.M)
    for dtype in ((), ("--dtype", "float32")):
        done = run("expand", "model.npz", "-o", "back.npy", *dtype, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        back = np.load(tmp_path / "back.npy")
        assert back.dtype == (np.float32 if dtype else np.float64)
        np.testing.assert_allclose(back, model.to_tensor(), rtol=1e-6)
    assert not list(tmp_path.glob(".*"))


def test_ranks(tmp_path: Path, counts: Counts) -> None:
    done = run("ranks", "x.npy", "--retain", "0.5", "0.9", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    curve = tk.information_curve(counts)
    for share in (0.5, 0.9):
        assert " x ".join(map(str, curve.retain(share).rank)) in done.stdout
    rows = json.loads(run("ranks", "x.npy", "--json", cwd=tmp_path).stdout)
    assert [row["retain"] for row in rows] == [0.5, 0.8, 0.9, 0.95, 0.99]


@pytest.mark.usefixtures("counts")
def test_compare(tmp_path: Path) -> None:
    pytest.importorskip("tensorly")
    done = run("compare", "x.npy", "--rank", "3,3,2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for method in ("LTR, clusters", "ntd, KL", "TensorLy, HALS"):
        assert re.search(rf"^{method} +[\d.]+ s .* \d\.\d{{4}} ", done.stdout, re.M)
    assert len(json.loads(run("compare", "x.npy", "--rank", "3", "--json", cwd=tmp_path).stdout)) == 8


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("info", "x.npy"), 1, "x.npy is not a tucket file"),
        (("info", "none.npz"), 1, "none.npz"),
        (("expand", "x.npy", "-o", "y.npy"), 1, "x.npy is not a tucket file"),
        (("expand", "m.npz", "-o", "no/y.npy"), 1, "there is no folder"),
        (("expand", "m.npz", "-o", "y.npy", "--dtype", "int8"), 1, "dtype: cannot use 'int8'; give float32 or float64"),
        (("ranks", "none.npy"), 1, "there is no file none.npy"),
        (("ranks", "x.npy", "--retain", "2"), 2, "2.0 is not a share; give numbers above 0, up to 1"),
        (("compare", "x.npy"), 2, "--rank"),
        (("compare", "x.npy", "--rank", "99,1,1"), 1, "mode 0: rank 99 is larger than its size 12"),
        (("reduce", "x.npy", "--rank", "2", "--retain", "0.5"), 1, "contradict each other"),
        (("reduce", "x.npy", "--rank", "2", "--variant", "printed"), 2, "'printed'"),
    ],
)
def test_more_errors(tmp_path: Path, counts: Counts, arguments: tuple[str, ...], code: int, message: str) -> None:
    tk.ltr(counts, 2).save(tmp_path / "m.npz")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "y.npy").exists()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_an_interrupt_leaves_nothing_half_written(tmp_path: Path) -> None:
    """Ctrl-C while a large tensor is written."""
    model = tk.BlockTucker(np.ones((1, 1)), tk.Partition.uniform((40_000, 40_000), 1), [np.full(40_000, 1 / 200)] * 2)
    model.save(tmp_path / "m.npz")
    program = str(Path(sys.executable).with_name("tucket"))
    with subprocess.Popen(
        [program, "expand", "m.npz", "-o", "y.npy"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as running:
        pages = Path(f"/proc/{running.pid}/statm")  # many only once the tensor is written: an import may lose Ctrl-C
        while running.poll() is None and int(pages.read_text().split()[1]) < 1 << 16:
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert errors == "tucket: interrupted; no incomplete file is left\n"
    assert [path.name for path in tmp_path.iterdir()] == ["m.npz"]


def test_report(tmp_path: Path, counts: Counts) -> None:
    tk.ltr(counts, 3).save(tmp_path / "model.npz")
    done = run("report", "model.npz", "x.npy", "-o", "page.html", "--title", "Counts", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"Open {(tmp_path / 'page.html').as_uri()}\n"
    assert '"title": "Counts"' in (tmp_path / "page.html").read_text()
    assert run("report", "model.npz", cwd=tmp_path).returncode == 0
    for arguments, message in (
        (("report", "x.npy"), "x.npy is not a tucket file"),
        (("report", "model.npz", "none.npy"), "there is no file none.npy"),
        (("report", "model.npz", "-o", "no/page.html"), "there is no folder"),
    ):
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == 1
        assert message in done.stderr
        assert done.stderr.count("\n") == 1


def test_nothing_that_matters_is_overwritten(tmp_path: Path, counts: Counts) -> None:
    """Neither the data, nor a device, nor the model of another run; links and permissions stay."""
    done = run("reduce", "x.npy", "--rank", "2", "-o", "x.npy", cwd=tmp_path)
    assert (done.returncode, "it is the input, and would be lost" in done.stderr) == (1, True)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), counts)
    os.mkfifo(tmp_path / "pipe")
    tk.ltr(counts, 2).save(tmp_path / "m.npz")
    for arguments in (("reduce", "x.npy", "--rank", "2", "-o", "pipe"), ("expand", "m.npz", "-o", "pipe")):
        done = run(*arguments, cwd=tmp_path)
        assert (done.returncode, "it is not a regular file" in done.stderr) == (1, True)
    assert (tmp_path / "pipe").is_fifo()
    for name in ("run.2024.01.npy", "run.2024.02.npy"):
        np.save(tmp_path / name, counts)
        assert json.loads(run("reduce", name, "--rank", "2", "--json", cwd=tmp_path).stdout)["saved"] == (
            name.replace(".npy", ".model.npz")
        )
    done = run("reduce", "run*.parquet", "--rank", "2", cwd=tmp_path)
    assert (done.returncode, "--output" in done.stderr) == (2, True)
    (tmp_path / "real.npy").touch(mode=0o600)
    (tmp_path / "link.npy").symlink_to("real.npy")
    assert run("expand", "m.npz", "-o", "link.npy", cwd=tmp_path).returncode == 0
    assert (tmp_path / "link.npy").is_symlink()
    assert (tmp_path / "real.npy").stat().st_mode & 0o777 == 0o600
    assert np.load(tmp_path / "real.npy").shape == counts.shape


def test_models_and_curves_of_statistics(tmp_path: Path, counts: Counts) -> None:
    statistics = tk.collect(counts, (6, 5, 4), moments=True)
    statistics.save(tmp_path / "s.npz")
    assert run("reduce", "s.npz", "--rank", "2", "-o", "m.npz", cwd=tmp_path).returncode == 0
    assert tk.load(tmp_path / "m.npz") == tk.ltr(statistics, 2)
    rows = json.loads(run("ranks", "s.npz", "--retain", "0.05", "--json", cwd=tmp_path).stdout)
    assert rows[0]["rank"] == list(tk.information_curve(statistics).retain(0.05).rank)
    done = run("ranks", "s.npz", "--retain", "0.99", "0.05", cwd=tmp_path)
    assert done.returncode == 0
    assert "The finest model considered has rank 6 x 5 x 4 and keeps" in done.stdout
    assert run("compare", "s.npz", "--rank", "2", cwd=tmp_path).returncode == 1


def test_bad_values_in_a_comparison(tmp_path: Path) -> None:
    x = np.ones((4, 5))
    x[1, 2] = np.nan
    np.save(tmp_path / "nan.npy", x)
    done = run("compare", "nan.npy", "--rank", "2", cwd=tmp_path)
    assert (done.returncode, "x[1, 2] is nan" in done.stderr) == (1, True)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    for arguments, code in (
        (("reduce", "nan.npy", "--rank", "3²"), 2),
        (("ranks", "nan.npy", "--retain", "-1"), 2),
        (("collect", "rows.csv", "--modes", "a", "--bins", "a=0,x", "--rank", "1", "-o", "y.npz"), 2),
    ):
        assert run(*arguments, cwd=tmp_path).returncode == code
