"""Every benchmark runs, at a size that a test can afford, and computes what NumPy does."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tucket as tk
from benchmarks import estimator, files, gap_methods, gaps, geometry, ntd, pages, scaling, sources, suite
from benchmarks.cases import Case, Pair, cases
from benchmarks.measure import compare, machine
from benchmarks.pages import decompositions
from benchmarks.plot import STYLES, draw, draw_idea, draw_ntd
from tucket import kernels

pytest.importorskip("tensorly", reason="benchmarks and their peers need the extra `dev`")


@pytest.fixture(params=[0, kernels.COMPILED_ENTRIES], ids=["numba", "numpy"], autouse=True)
def _kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "COMPILED_ENTRIES", request.param)


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_case(case: Case) -> None:
    pair = case.build(True)
    work: Any = pair.work()
    baseline: Any = pair.baseline()
    if case.baseline.startswith("numpy.sum") and isinstance(work, tk.Statistics):
        assert work.total == pytest.approx(float(baseline), rel=1e-12)
    elif isinstance(work, tk.Statistics):
        assert work.total > 0
    elif isinstance(work, tk.BlockTucker):
        assert work.core.sum() > 0
    else:
        assert np.isfinite(work).all()


def test_ratio_is_that_of_the_medians() -> None:
    def spend(steps: int) -> object:
        return sum(range(steps))

    found = compare(Pair(lambda: spend(300_000), lambda: spend(100_000), share=0.5))
    assert found.ratio == pytest.approx(found.seconds / found.baseline_seconds / 0.5)
    assert 0 < found.lowest <= found.highest


def test_asv_sees_every_case() -> None:
    assert suite.Cases.params == tuple(case.name for case in cases())
    assert len(set(suite.Cases.params)) == len(suite.Cases.params)
    assert {"cpu", "numpy", "numba"} <= set(machine())


def test_the_plot_is_drawn_from_results(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.plot.PLOT", tmp_path / "plot.svg")
    row = {"case": "c", "baseline": "numpy.sum", "limit": 1.0, "ratio": 0.5, "lowest": 0.4, "highest": 0.6}
    result = {"date": "2026-01-01", "machine": {"cpu": "x", "numpy": "2", "numba": "1"}, "ratios": [row]}
    assert "0.50 x numpy.sum" in draw(result).read_text()


def test_error_against_time_is_measured_and_drawn(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.plot.PLOT", tmp_path / "plot.svg")
    monkeypatch.delenv("NN_FAC_PYTHON", raising=False)
    x, rank = np.random.default_rng(0).gamma(0.5, size=(8, 7, 6)), (2, 2, 2)
    rows = [*ntd.ours(x, rank), *ntd.peers(x, rank)]
    assert "nn_fac is left out" in capsys.readouterr().out
    assert {row["method"] for row in rows} == {name for name in STYLES if not name.startswith("nn_fac")}
    assert all(row["seconds"] > 0 and 0 < row["ls"] < 1 for row in rows)
    case = {"tensor": "x", "shape": x.shape, "rank": rank, "rows": rows}
    assert "ntd, coarse to fine" in draw_ntd({"cases": [case]}).read_text()
    assert "| x (8, 7, 6), (2, 2, 2) | rel. error |" in decompositions({"cases": [case]})


def test_points_of_peers_that_nothing_beats_are_named() -> None:
    def row(method: str, seconds: float, error: float) -> dict[str, Any]:
        return {"method": method, "detail": "1", "seconds": seconds, "ls": error, "kl": None}

    mine = [row("LTR", 1, 0.5), row("ntd, coarse to fine", 2, 0.3)]
    assert list(ntd.dominated([*mine, row("peer", 1, 0.5), row("peer", 3, 0.3)])) == []
    assert list(ntd.dominated([*mine, row("peer", 1.5, 0.4)])) == ["peer 1, ls"]


def test_the_slow_ways_are_measured_beside_the_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geometry, "CASES", (((3, 3, 2), 1),))
    (row,) = geometry.measure()
    assert row["free"] == 5
    assert row["difference"]["natural"] < 1e-8


def test_sources_are_measured_and_the_page_is_filled(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).parents[1])
    result: dict[str, Any] = {
        "date": "2026-01-01",
        "machine": machine(),
        "sparse": sources.sparse(10_000, (100, 100, 30)),
        "tables": sources.tables(1000),
        "files": list(sources.files(tmp_path, (12, 11, 10))),
        "dask": sources.cluster((4, 5, 6), 2, 20),
    }
    assert [row["bytes"] for row in result["files"]] == [8 * 12 * 11 * 10] * 8
    assert not list(tmp_path.iterdir())
    page = scaling.fill_page(scaling.PAGE.read_text(), result)
    assert "| bytes read per pass | 1 TB | 100 TB | 1 PB |" in page
    assert scaling.fill_page(page, result) == page
    assert "weak scaling" in capsys.readouterr().out


def test_a_gpus_results_are_compared_with_float64() -> None:
    import torch

    from benchmarks import gpu

    x = torch.rand((6, 7, 8))
    stats = tk.collect(x, (2, 3, 4))
    assert gpu.error_of(stats, x) < 1e-13
    assert gpu.error_of(stats, 2 * x) == pytest.approx(0.5)
    kl, residual, norm = gpu.compared(x, 2 * x)
    assert kl == pytest.approx(tk.metrics.kl(x.numpy(), 2 * x.numpy()), rel=1e-5)
    assert residual == pytest.approx(norm)


SMALL = gap_methods.Setting((2, 2, 2), (2, 2, 2), 2, [(1, 1, 1), (2, 2, 2)], 1, 2)


def test_methods_fill_gaps_and_leave_what_is_known() -> None:
    x = np.random.default_rng(0).gamma(2.0, size=(8, 7, 6))
    hidden = gaps.some_fibres(x.shape, 2, 0.2, np.random.default_rng(1))
    assert (hidden == hidden[:, :, :1]).all()
    y = np.where(hidden, np.nan, x)
    for name, method in gap_methods.methods(SMALL).items():
        filled, _ = method(y)
        assert (filled >= 0).all(), name
        assert np.allclose(filled[~hidden], x[~hidden]), name


def test_errors_are_those_of_hidden_cells() -> None:
    x, hidden = np.array([[1.0, 0.0], [4.0, 9.0]]), np.array([[True, True], [True, False]])
    found = gaps.errors(np.array([[2.0, 1.0], [3.0, 0.0]]), x, hidden)
    assert found == {"rmse": pytest.approx(1.0), "relative": pytest.approx((1.0 + 0.25) / 2)}


def test_gaps_are_measured_and_tables_are_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gap_methods, "CP_ITERATIONS", 3)
    rng = np.random.default_rng(0)
    x = rng.gamma(2.0, size=(8, 7, 6))
    rated = (x > 2).nonzero()
    entries = [*map(np.asarray, rated)], x[rated], x.shape
    counts = rng.poisson(x)
    events = [*map(np.asarray, counts.nonzero())], counts[counts.nonzero()].astype(float), x.shape
    result: dict[str, Any] = {"date": "2026-01-01", "machine": machine()}
    cells, fibres = list(gaps.share_of(x, SMALL, 0.2)), list(gaps.share_of(x, SMALL, 0.2, 1))
    for name in gaps.TENSORS:
        result |= {f"{name}-cells-20": cells, f"{name}-fibres-20": fibres}
    result["responses"] = list(gaps.tenths(np.where(x > 5, np.nan, x), SMALL, 2))
    result["ratings"] = list(gaps.ratings(entries, (1, 2, 1), [1, 2]))
    result["uber5"] = list(gaps.events(events, (2, 2, 2), (None,)))
    result["cost"] = list(gaps.costs("x", x, 2))
    result["cross-validation"] = list(gaps.cross_validation(x, (1, 2)))
    assert all(row["rmse"] >= 0 for row in [*cells, *fibres, *result["responses"], *result["ratings"]])
    assert all(np.isfinite(row["held_out"]) for row in result["uber5"][1:])
    for table in pages.PAGES[pages.GAPS].values():
        assert "| ltr | " in table(result) or "AttFace" in table(result)
    assert "cells, 20 %" in pages.hidden(result)
    assert "held_out" in capsys.readouterr().out


def test_the_mean_of_user_and_film_shrinks() -> None:
    coords = [np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([0, 0, 0])]
    values = np.array([5.0, 3.0, 1.0])
    found = gaps.two_way_means((coords, values, (2, 2, 1)), coords)
    film = np.array([(2.0 - 2.0) / 7, 0.0])
    rest = values - 3 - film[coords[1]]
    user = np.array([rest[:2].sum() / 7, rest[2] / 6])
    assert np.allclose(found, 3 + film[coords[1]] + user[coords[0]])


def test_the_page_on_scaling_shows_the_kept_results() -> None:
    page = scaling.PAGE.read_text()
    assert scaling.fill_page(page, json.loads(sources.RESULTS.read_text())) == page


def test_features_of_digits_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(estimator.measure((6,), 1))
    assert {row["method"] for row in rows} >= {"LTR, segments", "NMF", "PCA"}
    assert all(row["seconds"] > 0 and 0.3 < row["accuracy"] < 1 for row in rows)
    assert "accuracy" in capsys.readouterr().out


def test_the_first_picture_is_that_of_the_gallery(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(Path(__file__).parents[1] / "docs" / "gallery", tmp_path / "gallery")
    monkeypatch.setattr("benchmarks.plot.PLOT", tmp_path / "plot.svg")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")
        assert "the core: sums of blocks" in draw_idea().read_text()


def test_files_and_lines_are_counted(tmp_path: Path) -> None:
    assert {"base/partition.py", "projection/ltr.py"} <= set(files.files_of(lambda: tk.ltr([[1, 2], [3, 4]], 1)))
    (tmp_path / "module.py").write_text('"""Two\nlines."""\nimport sys\n\n# why\nX = """\n"""\n')
    assert files.lengths(tmp_path / "module.py") == (7, 2)
