"""Tensors with gaps, exposure and ranks from held-out cells, by the installed program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tucket as tk
from program import run, watch


def facts_of(*arguments: str, cwd: Path) -> dict[str, Any]:
    done = run(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


Counts = NDArray[np.float64]


@pytest.fixture
def counts(tmp_path: Path) -> Counts:
    """Write counts of which some are not known, what they were, and which are known, in several formats."""
    rng = np.random.default_rng(0)
    full = rng.poisson(np.kron(rng.gamma(1, 3, (2, 2, 2)), np.ones((6, 5, 4)))).astype(np.float64)
    known = rng.random(full.shape) > 0.2
    known[:, 0, 0] = True
    gaps = np.where(known, full, np.nan)
    cells = np.nonzero(known)
    np.save(tmp_path / "full.npy", full)
    np.save(tmp_path / "gaps.npy", gaps)
    np.save(tmp_path / "known.npy", known)
    np.savez(tmp_path / "known.npz", coords=np.stack(cells), values=np.ones(len(cells[0])), shape=np.array(full.shape))
    np.save(tmp_path / "hours.npy", rng.gamma(2, 1, (12, 1, 1)))
    np.save(tmp_path / "numbers.npy", known.astype(int))
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    return gaps


@pytest.mark.parametrize("method", ["ltr", "ntd"])
def test_what_is_known_is_fitted_and_measured(tmp_path: Path, counts: Counts, method: str) -> None:
    methods: dict[str, Any] = {"ltr": tk.ltr, "ntd": tk.ntd}
    expected = methods[method](counts, 2, observed="finite")
    kl = expected.kl(counts, observed="finite") / np.nansum(counts)
    for arguments in (
        ("gaps.npy", "--missing", "nan"),
        ("full.npy", "--observed", "known.npy"),
        ("full.npy", "--observed", "known.npz"),
    ):
        facts = facts_of("fit", *arguments, "--rank", "2", "--method", method, "-o", "m.npz", cwd=tmp_path)
        assert facts["kl_over_sum"] == pytest.approx(kl, rel=1e-6)
        assert "information_kept" not in facts
        np.testing.assert_allclose(tk.load(tmp_path / "m.npz").to_tensor(), expected.to_tensor(), rtol=1e-4)


def test_masks_as_text_have_the_shape_of_the_data(tmp_path: Path, counts: Counts) -> None:
    pytest.importorskip("pandas")
    known = np.isfinite(counts)
    known[-1] = False
    (tmp_path / "known.tns").write_text("\n".join(f"{i + 1} {j + 1} {k + 1} 1" for i, j, k in np.argwhere(known)))
    run("reduce", "full.npy", "--observed", "known.tns", "--rank", "2", "-o", "m.npz", cwd=tmp_path)
    expected = tk.ltr(counts, 2, observed=known)
    np.testing.assert_allclose(tk.load(tmp_path / "m.npz").to_tensor(), expected.to_tensor(), rtol=1e-9)


def test_exposure(tmp_path: Path, counts: Counts) -> None:
    hours = np.load(tmp_path / "hours.npy")
    facts = facts_of(
        "reduce", "gaps.npy", "--missing", "nan", "--exposure", "hours.npy", "--rank", "2", "-o", "m.npz", cwd=tmp_path
    )
    rates = tk.ltr(counts, 2, observed="finite", exposure=hours)
    assert tk.load(tmp_path / "m.npz") == rates
    kl = rates.kl(counts, observed="finite", exposure=hours)
    assert facts["kl_over_sum"] == pytest.approx(kl / np.nansum(counts))


def test_ratings(tmp_path: Path) -> None:
    """In a table of ratings, a pair of user and film without a rating is not known."""
    pytest.importorskip("pyarrow")
    (tmp_path / "stars.csv").write_text("user,film,stars\nann,x,4\nann,y,5\nbob,x,3\ncho,y,2\ncho,z,1\n")
    table = ("stars.csv", "--modes", "user,film", "--value", "stars", "--missing", "unstored")
    facts = facts_of("reduce", *table, "--rank", "1", "-o", "m.npz", cwd=tmp_path)
    assert facts["kl_over_sum"] == pytest.approx(0, abs=1e-6)
    done = run("fill", "m.npz", *table, "-o", "all.npy", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_allclose(np.load(tmp_path / "all.npy"), [[4, 5, 2.5], [3, 3.75, 1.875], [1.6, 2, 1]], rtol=1e-4)


def test_fill(tmp_path: Path, counts: Counts) -> None:
    model = tk.ltr(counts, 2, observed="finite")
    model.save(tmp_path / "m.npz")
    for arguments in (("gaps.npy",), ("full.npy", "--observed", "known.npy"), ("gaps.npy", "--missing", "nan")):
        done = run("fill", "m.npz", *arguments, "-o", "filled.npy", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "saved  filled.npy\n" in done.stdout
        np.testing.assert_array_equal(np.load(tmp_path / "filled.npy"), model.fill(counts))
    assert not list(tmp_path.glob(".*"))


def test_ranks_from_the_data(tmp_path: Path, counts: Counts) -> None:
    full = np.load(tmp_path / "full.npy")
    for arguments, expected in (
        (("full.npy", "--rank", "cv"), tk.ltr(full, "cv")),
        (("gaps.npy", "--rank", "cv", "--missing", "nan"), tk.ltr(counts, "cv", observed="finite")),
        (("full.npy", "--rank", "mdl"), tk.ltr(full, "mdl")),
    ):
        facts_of("reduce", *arguments, "-o", "m.npz", cwd=tmp_path)
        assert tk.load(tmp_path / "m.npz") == expected
    facts = facts_of("fit", "full.npy", "--method", "ntd", "--rank", "cv", cwd=tmp_path)
    assert facts["rank"] == [2, 2, 2]


def test_held_out_ranks(tmp_path: Path, counts: Counts) -> None:
    search: Any = facts_of("ranks", "gaps.npy", "--held-out", "--missing", "nan", cwd=tmp_path)
    table = tk.cross_validate(counts, observed="finite")
    assert [row["held_out"] for row in search] == sorted(score.loss for score in table.scores)
    assert [tuple(row["rank"]) for row in search if row["best"]] == [table.best()]
    given = (
        "--rank",
        "1",
        "--rank",
        "2,-,3",
        "--folds",
        "3",
        "--share",
        "0.2",
        "--blocks",
        "segments,uniform,segments",
    )
    done = run("ranks", "full.npy", "--held-out", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    blocks = ("segments", "uniform", "segments")
    table = tk.cross_validate(np.load(tmp_path / "full.npy"), [1, (2, None, 3)], folds=3, share=0.2, blocks=blocks)
    assert f"Take --rank {','.join(map(str, table.best()))}," in done.stdout
    assert all(f"{score.loss:.5f}" in done.stdout for score in table.scores)


def test_a_terminal_shows_the_search(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).poisson(np.kron([[9, 1], [2, 7]], np.ones((30, 40)))))
    for arguments, shown in (
        (("fit", "x.npy", "--rank", "cv", "--method", "ntd"), (b"ranks tried: ", b"iteration ")),
        (("ranks", "x.npy", "--held-out"), (b"ranks tried: ",)),
    ):
        output = watch(*arguments, cwd=tmp_path)
        assert [part for part in shown if part not in output] == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("reduce", "gaps.npy", "--rank", "2"), 1, "fit, reduce and ranks --held-out take --missing nan)"),
        (("fit", "full.npy", "--missing", "unstored", "--rank", "2"), 1, "tucket: --missing unstored is for sparse"),
        (("fit", "full.npy", "--missing", "zero", "--rank", "2"), 2, "'zero'"),
        (("fit", "gaps.npy", "--missing", "nan", "--observed", "known.npy", "--rank", "2"), 2, "give one of them"),
        (("fit", "full.npy", "--observed", "numbers.npy", "--rank", "2"), 1, "of int64; give a Boolean tensor"),
        (("fit", "full.npy", "--observed", "hours.npy", "--rank", "2"), 1, "observed has shape (12, 1, 1), but x is"),
        (("fit", "full.npy", "--observed", "table.csv", "--rank", "2"), 2, "table.csv is a table"),
        (("fit", "full.npy", "--observed", "none.npy", "--rank", "2"), 1, "there is no file none.npy"),
        (("fit", "full.npy", "--exposure", "flat.npy", "--rank", "2"), 1, "--exposure: its shape (5,) does not"),
        (("fit", "gaps.npy", "--missing", "nan", "--retain", "0.5"), 1, "--retain: it is for tensors without gaps"),
        (("fit", "gaps.npy", "--missing", "nan", "--rank", "mdl"), 1, "tucket: --rank mdl is for tensors without"),
        (("fit", "full.npy", "--rank", "cv", "--retain", "0.5"), 1, "--rank cv and --retain 0.5 contradict"),
        (("fit", "full.npy", "--rank", "mdl", "--method", "ntd"), 2, "only --method ltr has mdl"),
        (("fit", "s.npz", "--rank", "cv"), 1, "tucket: --rank cv: statistics have no cells"),
        (("fit", "s.npz", "--rank", "1", "--missing", "nan"), 1, "tucket: statistics have no gaps; give the tensor"),
        (("compare", "full.npy", "--rank", "cv"), 2, "'cv' is not a whole number"),
        (("ranks", "gaps.npy", "--missing", "nan"), 2, "--missing: only --held-out has it"),
        (("ranks", "full.npy", "--folds", "3", "--exposure", "hours.npy"), 2, "--folds, --exposure: only --held-out"),
        (("ranks", "full.npy", "--held-out", "--retain", "0.5"), 2, "--retain: it is not for --held-out"),
        (("ranks", "full.npy", "--held-out", "--loss", "ls"), 2, "--loss: only --method ntd has it"),
        (("ranks", "full.npy", "--held-out", "--share", "2"), 1, "tucket: --share: got 2.0"),
        (("fill", "m.npz", "flat.npy", "-o", "y.npy"), 1, "x has shape (5,), but the model is of shape (12, 10, 8)"),
        (("fill", "m.npz", "gaps.npy", "-o", "gaps.npy"), 1, "cannot write gaps.npy: it is the input"),
        (("fill", "m.npz", "gaps.npy", "-o", "m.npz"), 1, "cannot write m.npz: it is the input"),
        (("fill", "m.npz", "full.npy", "--missing", "refuse", "-o", "y.npy"), 2, "'refuse'"),
    ],
)
def test_errors(tmp_path: Path, counts: Counts, arguments: tuple[str, ...], code: int, message: str) -> None:
    np.save(tmp_path / "flat.npy", np.ones(5))
    tk.ltr(counts, 2, observed="finite").save(tmp_path / "m.npz")
    tk.collect(np.nan_to_num(counts), 2).save(tmp_path / "s.npz")
    before = {path.name for path in tmp_path.iterdir()}
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the oldest typer, with a new click
def test_messages_name_options() -> None:
    from tucket.interfaces.cli.errors import as_typed

    options = ["n_iter_max", "rank", "key", "observed"]
    for message, typed in (
        ("n_iter_max: got 0; give an int from 1", "--n-iter-max: got 0; give an int from 1"),
        ("holds 2 arrays; choose one, as with key=...", "holds 2 arrays; choose one, as with --key ..."),
        ("mode 0: rank 9 is larger than its size 4", "mode 0: rank 9 is larger than its size 4"),
        ("monkey: none", "monkey: none"),
    ):
        assert as_typed(message, options) == typed
