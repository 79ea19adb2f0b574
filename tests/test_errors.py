"""Bad input: every message says where, what came, and what would do."""

# mypy: disable-error-code="arg-type,call-arg,call-overload,index,list-item,misc"

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import tucket as tk
from tucket import geometry
from tucket.base.blocks import Blocks

X = np.arange(1.0, 25.0).reshape(2, 3, 4)
PARTITION = tk.Partition.uniform(X.shape, 2)


class Failing:
    """An array that cannot be read."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ValueError("disk gone")


def holding(value: float, index: tuple[int, ...] = (1, 0, 3)) -> Any:
    x = X.copy()
    x[index] = value
    return x


CASES: list[tuple[str, Callable[[], object], type[Exception], str]] = [
    # the tensor
    (
        "negative",
        lambda: tk.ltr(holding(-0.5), 2),
        ValueError,
        "x[1, 0, 3] is -0.5; every entry must be finite and not negative (clip it, as with numpy.maximum)",
    ),
    (
        "negative int",
        lambda: tk.ltr(holding(-3).astype("i4"), 2),
        ValueError,
        "x[1, 0, 3] is -3; every entry",
    ),
    ("nan", lambda: tk.ltr(holding(np.nan), 2), ValueError, "x[1, 0, 3] is nan; every entry must be finite"),
    ("inf", lambda: tk.ltr(holding(np.inf), 2), ValueError, "x[1, 0, 3] is inf; every entry must be finite"),
    ("minus inf", lambda: tk.ltr(holding(-np.inf, (0, 0, 0)), 2), ValueError, "x[0, 0, 0] is -inf"),
    ("first of several", lambda: tk.ltr(-X, 2), ValueError, "x[0, 0, 0] is -1.0"),
    ("nan in kl", lambda: tk.ltr(X, 2).kl(holding(np.nan)), ValueError, "x[1, 0, 3] is nan"),
    ("negative in error", lambda: tk.ltr(X, 2).relative_error(-X), ValueError, "x[0, 0, 0] is -1.0"),
    (
        "nan in collect",
        lambda: tk.collect(holding(np.nan), tk.Partition.uniform(X.shape, 1)),
        ValueError,
        "is nan",
    ),
    ("negative in metric", lambda: tk.metrics.kl(X, -X), ValueError, "q[0, 0, 0] is -1.0"),
    ("nan in metric", lambda: tk.metrics.total_correlation(holding(np.nan)), ValueError, "p[1, 0, 3] is nan"),
    (
        "too large a sum",
        lambda: tk.ltr(np.full((2, 2), 1e308), 1),
        ValueError,
        "the sum of x is too large for float64 (its largest entry is 1e+308); scale x down",
    ),
    (
        "complex",
        lambda: tk.ltr(X.astype(complex), 2),
        TypeError,
        "x is of type ndarray and dtype complex128; give real numbers: bool, integers, or float16 to float64",
    ),
    ("object", lambda: tk.ltr(X.astype(object), 2), TypeError, "dtype object; give real numbers"),
    (
        "string",
        lambda: tk.ltr("faces.npy", 2),
        TypeError,
        "x is a path: open it first, as with tucket.open('faces.npy')",
    ),
    ("None", lambda: tk.ltr(None, 2), TypeError, "x is of type NoneType and dtype object"),
    ("long double", lambda: tk.ltr(X.astype(np.longdouble), 2), TypeError, "float16 to float64"),
    ("dates", lambda: tk.ltr(np.zeros(3, "M8[s]"), 1), TypeError, "dtype datetime64[s]; give real numbers"),
    (
        "masked",
        lambda: tk.information_curve(np.ma.masked_less(X, 3)),
        TypeError,
        "x has masked entries, and this needs a tensor without gaps; tucket.ltr, ntd, collect and",
    ),
    ("ragged", lambda: tk.ltr([[1, 2], [3]], 1), ValueError, "x has rows of unequal length; give a full"),
    (
        "empty mode",
        lambda: tk.ltr(np.ones((2, 0, 3)), 1),
        ValueError,
        "mode 1 of x is empty (shape (2, 0, 3))",
    ),
    (
        "empty list",
        lambda: tk.ltr([], 1),
        ValueError,
        "mode 0 of x is empty (shape (0,)); give at least one index",
    ),
    ("0-d", lambda: tk.ltr(3.0, 1), ValueError, "x is a scalar (0-d); give an array of at least one mode"),
    # the rank
    ("no rank", lambda: tk.ltr(X), TypeError, "rank is missing; give an int, or one per mode"),
    (
        "rank 0",
        lambda: tk.ltr(X, 0),
        ValueError,
        "mode 0: rank 0 is too small; give an int from 1 to 2, or None to leave the mode alone",
    ),
    (
        "negative rank",
        lambda: tk.ltr(X, (1, -2, 1)),
        ValueError,
        "mode 1: rank -2 is too small; give an int from 1 to 3",
    ),
    (
        "rank too large",
        lambda: tk.ltr(X, (2, 3, 500)),
        ValueError,
        "mode 2: rank 500 is larger than its size 4; give at most 4, or None to leave the mode alone",
    ),
    (
        "one rank too large for a mode",
        lambda: tk.ltr(X, {0: 3}, names="abc"),
        ValueError,
        "mode 0: rank 3 is larger than its size 2",
    ),
    (
        "too few ranks",
        lambda: tk.ltr(X, (2, 2)),
        ValueError,
        "rank: got 2 entries for 3 modes of shape (2, 3, 4); give one per mode",
    ),
    ("too many ranks", lambda: tk.ltr(X, (1,) * 4), ValueError, "rank: got 4 entries for 3 modes"),
    (
        "float rank",
        lambda: tk.ltr(X, (2, 2.0, 2)),
        TypeError,
        "mode 1: rank 2.0 is of type float; give an int",
    ),
    ("one float rank", lambda: tk.ltr(X, 2.5), TypeError, "mode 0: rank 2.5 is of type float"),
    ("bool rank", lambda: tk.ltr(X, True), TypeError, "mode 0: rank True is of type bool"),
    ("string rank", lambda: tk.ltr(X, "10"), ValueError, "rank: unknown '10'; give one of 'mdl'"),
    ("capital rank", lambda: tk.ltr(X, "MDL"), ValueError, "rank: unknown 'MDL'; did you mean 'mdl'?"),
    (
        "rank beyond the statistics",
        lambda: tk.ltr(tk.collect(X, tk.Partition.uniform(X.shape, 2)), (1, 3, 1)),
        ValueError,
        "mode 1: rank 3 is larger than its size 2; give at most 2, or None to leave the mode alone "
        "(the statistics hold 2 blocks of its 3 indices)",
    ),
    # blocks and variant
    (
        "unknown blocks",
        lambda: tk.ltr(X, 2, blocks="best"),
        ValueError,
        "blocks: unknown 'best'; give one of 'clusters', 'segments', 'uniform', 'random'",
    ),
    (
        "blocks of no kind",
        lambda: tk.ltr(X, 2, blocks=3),
        TypeError,
        "blocks: cannot use 3; give 'clusters', 'segments', 'uniform', 'random', one of these",
    ),
    (
        "unknown variant",
        lambda: tk.ltr(X, 2, variant="exact"),
        ValueError,
        "variant: unknown 'exact'; give one of 'projection', 'published'",
    ),
    ("variant of no kind", lambda: tk.ltr(X, 2, variant=[]), ValueError, "variant: unknown []"),
    (
        "rank against blocks",
        lambda: tk.ltr(X, 2, blocks=[[0], [0], [0]]),
        ValueError,
        "mode 0: rank 2 contradicts the 1 given blocks; leave rank out",
    ),
    (
        "partition of another shape",
        lambda: tk.ltr(X, blocks=tk.Partition.uniform((2, 3, 5), 1)),
        ValueError,
        "x has shape (2, 3, 4), but the partition is of shape (2, 3, 5)",
    ),
    (
        "bad rng",
        lambda: tk.ltr(X, 2, blocks="random", rng=-1),
        ValueError,
        "rng: cannot use -1; give None, a non-negative int",
    ),
    ("worse rng", lambda: tk.ltr(X, 2, blocks="random", rng="a"), TypeError, "rng: cannot use 'a'"),
    (
        "bad dtype",
        lambda: tk.ltr(X, 2, dtype="int8"),
        TypeError,
        "dtype: cannot use 'int8'; give float32 or float64",
    ),
    (
        "no dtype",
        lambda: tk.ltr(X, 2, dtype="flat"),
        TypeError,
        "dtype: cannot use 'flat'; give float32 or float64",
    ),
    (
        "beyond float32",
        lambda: tk.ltr(X * 1e300, 2, dtype=np.float32),
        ValueError,
        "is out of float32's range; keep float64",
    ),
    (
        "below float32",
        lambda: tk.ltr(X * 1e-300, 2, dtype=np.float32),
        ValueError,
        "is out of float32's range",
    ),
    # starts and labels
    (
        "starts not sorted",
        lambda: tk.ltr(X, blocks=[[0], [0, 2, 1], [0]]),
        ValueError,
        "mode 1: start 1 comes after start 2; give increasing starts, each once",
    ),
    (
        "starts repeated",
        lambda: tk.ltr(X, blocks=[[0], [0, 1, 1], [0]]),
        ValueError,
        "mode 1: start 1 comes after start 1",
    ),
    (
        "starts beyond",
        lambda: tk.ltr(X, blocks=[[0], [0, 3], [0]]),
        ValueError,
        "mode 1: start 3 is outside the mode; give starts below its size 3",
    ),
    (
        "starts late",
        lambda: tk.ltr(X, blocks=[[0], [0], [1, 2]]),
        ValueError,
        "mode 2: starts begin at 1; the first block starts at 0",
    ),
    ("starts negative", lambda: tk.ltr(X, blocks=[[-1], [0], [0]]), ValueError, "mode 0: starts begin at -1"),
    (
        "starts empty",
        lambda: tk.ltr(X, blocks=[[], [0], [0]]),
        ValueError,
        "mode 0: starts: got shape (0,); give a flat sequence",
    ),
    (
        "starts float",
        lambda: tk.ltr(X, blocks=[[0.0], [0], [0]]),
        TypeError,
        "mode 0: starts: got float64 entries; give ints",
    ),
    (
        "starts bool",
        lambda: tk.ltr(X, blocks=[[False], [0], [0]]),
        TypeError,
        "mode 0: starts: got bool entries; give ints",
    ),
    (
        "starts nested",
        lambda: tk.ltr(X, blocks=[[[0]], [0], [0]]),
        ValueError,
        "mode 0: starts: got shape (1, 1)",
    ),
    (
        "starts ragged",
        lambda: tk.ltr(X, blocks=[[0, [1]], [0], [0]]),
        ValueError,
        "mode 0: starts: cannot use [0, [1]]",
    ),
    (
        "starts huge",
        lambda: Blocks.from_starts(9, np.array([0, 2**63], np.uint64)),
        ValueError,
        "starts: 9223372036854775808 is too large for an index",
    ),
    (
        "starts missing",
        lambda: tk.ltr(X, blocks=[[0], [0]]),
        ValueError,
        "blocks: got 2 entries for 3 modes of shape (2, 3, 4)",
    ),
    (
        "labels with a gap",
        lambda: tk.Partition.from_labels([[0], [0, 2, 0]]),
        ValueError,
        "mode 1: label 1 is never used, though 2 is; number the blocks",
    ),
    (
        "labels negative",
        lambda: tk.Partition.from_labels([[0, -1]]),
        ValueError,
        "mode 0: label -1 of index 1 is negative; count from 0",
    ),
    (
        "labels huge",
        lambda: tk.Partition.from_labels([[0, 10**12]]),
        ValueError,
        "mode 0: label 1000000000000 is too large for 2 indices",
    ),
    (
        "labels none",
        lambda: tk.Partition.from_labels([]),
        ValueError,
        "labels: got none; give one sequence of labels per mode",
    ),
    (
        "labels no list",
        lambda: tk.Partition.from_labels(3),
        TypeError,
        "labels: cannot use 3; give one sequence of labels per mode",
    ),
    (
        "labels flat",
        lambda: tk.Partition.from_labels([0, 1]),
        ValueError,
        "mode 0: labels: got shape (); give a flat sequence",
    ),
    (
        "shape of no kind",
        lambda: tk.Partition.uniform(3, 1),
        TypeError,
        "shape: cannot use 3; give a tuple of ints",
    ),
    (
        "shape empty",
        lambda: tk.Partition.uniform((), 1),
        ValueError,
        "shape: cannot use (); give at least one mode",
    ),
    ("shape zero", lambda: tk.Partition.random((3, 0), 1), ValueError, "shape: cannot use (3, 0)"),
    # partitions and statistics together
    (
        "not coarser",
        lambda: tk.collect(X, tk.Partition.uniform(X.shape, (2, 1, 2))).coarsen(
            tk.Partition.uniform(X.shape, (2, 3, 1))
        ),
        ValueError,
        "mode 1: block 0 (indices 0, 1, 2) is split by the other partition; give one with unions of these 1 blocks",
    ),
    (
        "coarsen to another shape",
        lambda: tk.collect(X, tk.Partition.uniform(X.shape, 2)).coarsen(tk.Partition.uniform((2, 3), 1)),
        ValueError,
        "the partitions are of shapes (2, 3, 4) and (2, 3); give equal ones",
    ),
    (
        "compose with another shape",
        lambda: tk.Partition.uniform(X.shape, 2).compose(tk.Partition.uniform((2, 2), 1)),
        ValueError,
        "the outer partition is of shape (2, 2); give this partition's rank (2, 2, 2)",
    ),
    (
        "add other partitions",
        lambda: tk.collect(X, tk.Partition.uniform(X.shape, 2)) + tk.collect(X, tk.Partition.uniform(X.shape, 1)),
        ValueError,
        "cannot add statistics of different partitions",
    ),
    (
        "sum beyond float64",
        lambda: tk.collect([1e308], tk.Partition.uniform((1,), 1)) + tk.collect([1e308], tk.Partition.uniform((1,), 1)),
        ValueError,
        "the totals 1e+308 and 1e+308 add to more than float64 can hold",
    ),
    (
        "collect of another shape",
        lambda: tk.collect(X, tk.Partition.uniform((2, 3), 1)),
        ValueError,
        "x has shape (2, 3, 4), but the partition is of shape (2, 3)",
    ),
    (
        "collect by strategy",
        lambda: tk.collect(X, "clusters"),
        TypeError,
        "mode 0: rank 'clusters' is of type str; give an int from 1 to 2",
    ),
    (
        "starts of free blocks",
        lambda: tk.Partition.from_labels([[1, 0]])[0].starts,
        ValueError,
        "free blocks have no starts; use labels",
    ),
    # models
    (
        "kl of another shape",
        lambda: tk.ltr(X, 2).kl(X[0]),
        ValueError,
        "x has shape (3, 4), but the model is of shape (2, 3, 4)",
    ),
    (
        "metric of two shapes",
        lambda: tk.metrics.kl(X, X[0]),
        ValueError,
        "q has shape (3, 4), but p is of shape (2, 3, 4)",
    ),
    (
        "index out of range",
        lambda: tk.ltr(X, 2)[0, 3],
        IndexError,
        "mode 1: index 3 is out of range for size 3",
    ),
    (
        "index negative out of range",
        lambda: tk.ltr(X, 2)[..., -5],
        IndexError,
        "mode 2: index -5 is out of range for size 4",
    ),
    (
        "too many indices",
        lambda: tk.ltr(X, 2)[0, 0, 0, 0],
        IndexError,
        "got 4 indices for 3 modes of shape (2, 3, 4)",
    ),
    ("two dots", lambda: tk.ltr(X, 2)[..., 0, ...], IndexError, "an index may hold '...' only once"),
    (
        "index by list",
        lambda: tk.ltr(X, 2)[0, [1, 2]],
        TypeError,
        "mode 1: cannot use [1, 2] of type list as an index; give ints, slices or '...'",
    ),
    (
        "index by float",
        lambda: tk.ltr(X, 2)[1.0],
        TypeError,
        "mode 0: cannot use 1.0 of type float as an index",
    ),
    (
        "index by bool",
        lambda: tk.ltr(X, 2)[True],
        TypeError,
        "mode 0: cannot use True of type bool as an index",
    ),
    (
        "index by None",
        lambda: tk.ltr(X, 2)[None],
        TypeError,
        "mode 0: cannot use None of type NoneType as an index",
    ),
    (
        "slice by float",
        lambda: tk.ltr(X, 2)[0, 0.5:2],
        TypeError,
        "mode 1: cannot use slice(0.5, 2, None) as an index: slice indices must be integers",
    ),
    (
        "slice of step 0",
        lambda: tk.ltr(X, 2)[::0],
        ValueError,
        "mode 0: cannot use slice(None, None, 0) as an index: slice step cannot be zero",
    ),
    (
        "core of another rank",
        lambda: tk.BlockTucker(np.ones((1, 2)), tk.Partition.uniform((3, 3), 2), [np.ones(3)] * 2),
        ValueError,
        "the core is of shape (1, 2); give the partition's rank (2, 2)",
    ),
    (
        "weights of another size",
        lambda: tk.BlockTucker(np.ones((1, 1)), tk.Partition.uniform((3, 2), 1), [np.ones(3)] * 2),
        ValueError,
        "mode 1: the weights are of shape (3,); give 2 of them",
    ),
    (
        "weights missing",
        lambda: tk.BlockTucker(np.ones((1, 1)), tk.Partition.uniform((3, 3), 1), [np.ones(3)]),
        ValueError,
        "weights: got 1 for a core of 2 modes; give one per mode",
    ),
    (
        "weights negative",
        lambda: tk.BlockTucker(np.ones(1), tk.Partition.uniform((3,), 1), [[1, -1, 0]]),
        ValueError,
        "weights[0][1] is -1",
    ),
    ("core nan", lambda: tk.Tucker([np.nan], [np.ones((3, 1))]), ValueError, "core[0] is nan"),
    (
        "factor of another rank",
        lambda: tk.Tucker(np.ones((2, 2)), [np.ones((3, 2)), np.ones((3, 1))]),
        ValueError,
        "mode 1: the factor is of shape (3, 1); give a matrix of 2 columns",
    ),
    (
        "factors missing",
        lambda: tk.Tucker(np.ones((2, 2)), [np.ones((3, 2))]),
        ValueError,
        "factors: got 1 for a core of 2 modes",
    ),
    # what is of the wrong kind altogether
    (
        "rank of arrays",
        lambda: tk.ltr(X, (np.array([1, 2]), 2, 2)),
        TypeError,
        "mode 0: rank array([1, 2]) is of type ndarray",
    ),
    ("index by array", lambda: tk.ltr(X, 2)[np.array([0, 1])], TypeError, "of type ndarray as an index; give ints"),
    ("index by mask", lambda: tk.ltr(X, 2)[X > 3], TypeError, "of type ndarray as an index; give ints"),
    ("refines no partition", lambda: PARTITION.refines(3), TypeError, "coarse: got a int; give a tucket.Partition"),
    (
        "quotient no partition",
        lambda: PARTITION.quotient([[0]]),
        TypeError,
        "coarse: got a list; give a tucket.Partition",
    ),
    (
        "compose no partition",
        lambda: PARTITION.compose(None),
        TypeError,
        "outer: got a NoneType; give a tucket.Partition",
    ),
    ("coarsen no partition", lambda: tk.collect(X, PARTITION).coarsen((1, 1, 1)), TypeError, "coarse: got a tuple"),
    ("model of no partition", lambda: tk.BlockTucker(X, [[0]], []), TypeError, "partition: got a list"),
    (
        "weights no list",
        lambda: tk.BlockTucker(np.ones((2, 2, 2)), PARTITION, 3),
        TypeError,
        "weights: got a int; give one for each of the 3 modes",
    ),
    ("factors no list", lambda: tk.Tucker(X, 3), TypeError, "factors: got a int; give one for each of the 3 modes"),
    (
        "partition of ints",
        lambda: tk.Partition([1, 2]),
        TypeError,
        "modes: cannot use [1, 2]; give the Blocks of each mode",
    ),
    ("partition of nothing", lambda: tk.Partition(()), TypeError, "modes: cannot use (); give the Blocks"),
    (
        "statistics that do not fit",
        lambda: tk.Statistics(PARTITION, np.ones(3), (), None, "x"),
        ValueError,
        "do not fit the partition of shape (2, 3, 4)",
    ),
    ("mode out of range", lambda: PARTITION[9], IndexError, "mode 9 is out of range for 3 modes of shape (2, 3, 4)"),
    ("block out of range", lambda: PARTITION[0].indices(9), IndexError, "block 9 is out of range; there are 2 blocks"),
    ("blocks of no mode", lambda: tk.ltr(X, 2).blocks(3), IndexError, "mode 3 is out of range for 3 modes"),
    ("out of no kind", lambda: tk.ltr(X, 2).to_tensor(out=[1]), TypeError, "out: got a list; give a plain NumPy array"),
    ("out masked", lambda: tk.ltr(X, 2).to_tensor(out=np.ma.array(X, mask=X > 3)), TypeError, "out: got a MaskedArray"),
    (
        "out of ints",
        lambda: tk.ltr(X, 2).to_tensor(out=np.ones(X.shape, int)),
        TypeError,
        "out: got an array of int64; give one of float32",
    ),
    (
        "out of another dtype",
        lambda: tk.ltr(X, 2).to_tensor(out=X.copy(), dtype="f4"),
        TypeError,
        "out: got an array of float64, but dtype float32",
    ),
    (
        "out and no dtype",
        lambda: tk.ltr(X, 2).to_tensor(out=X.copy(), dtype="flat"),
        TypeError,
        "dtype: cannot use 'flat'",
    ),
    (
        "out of another shape",
        lambda: tk.ltr(X, 2).to_tensor(out=np.ones(3)),
        ValueError,
        "out has shape (3,), but the model is of shape (2, 3, 4)",
    ),
    (
        "out read-only",
        lambda: tk.ltr(X, 2).to_tensor(out=np.broadcast_to(1.0, X.shape)),
        ValueError,
        "out: got a read-only array",
    ),
    (
        "sparse",
        lambda: tk.lra_sntd(scipy.sparse.eye_array(3).tocsr(), 2),
        TypeError,
        "x is a csr_array, and this needs an array in memory; read it as one, as with tucket.open(...).to_numpy()",
    ),
    (
        "stream read once",
        lambda: tk.ntd(iter([X, X]), 2),
        TypeError,
        "x is a stream that can be read only once, and this reads it several times; give a Stream of something",
    ),
    (
        "dense array too large",
        lambda: tk.from_entries(([1], [2]), [3.0], (10**7, 10**7)).to_numpy(),
        ValueError,
        "<Sparse of a tensor of shape (10000000, 10000000) with 1 entries> as a dense array would take 800,000.0 GB",
    ),
    ("array that fails", lambda: tk.ltr(Failing(), 2), ValueError, "x cannot be read as an array: disk gone"),
    (
        "starts that wrap",
        lambda: tk.Partition.from_starts((5,), [np.array([0, 2**62, -(2**63)])]),
        ValueError,
        "mode 0: start -9223372036854775808 comes after",
    ),
    (
        "shape too large",
        lambda: tk.Partition.uniform((2**63,), 4),
        ValueError,
        "shape: cannot use (9223372036854775808,)",
    ),
    # workers and limits
    (
        "workers 0",
        lambda: tk.ltr(X, 2, workers=0),
        ValueError,
        "workers: got 0; give an int from 1 to 1024, or None for all",
    ),
    (
        "workers many",
        lambda: tk.ltr(X, 2).kl(X, workers=2**70),
        ValueError,
        "workers: got 1180591620717411303424; give an int from 1",
    ),
    (
        "workers float",
        lambda: tk.collect(X, PARTITION, workers=2.5),
        TypeError,
        "workers: got 2.5 of type float; give an int",
    ),
    ("workers bool", lambda: tk.ltr(X, 2).relative_error(X, workers=True), TypeError, "workers: got True of type bool"),
    (
        "workers of statistics",
        lambda: tk.ltr(tk.collect(X, PARTITION), 1, workers="x"),
        TypeError,
        "workers: got 'x' of type str",
    ),
    ("no sweeps", lambda: tk.ltr(X, 2, max_sweeps=0), ValueError, "max_sweeps: got 0; give an int from 1"),
    (
        "no seconds",
        lambda: tk.ltr(X, 2, max_seconds=-1),
        ValueError,
        "max_seconds: got -1; give a number of seconds above 0, or None",
    ),
    (
        "strategies missing",
        lambda: tk.ltr(X, 2, blocks=("segments", "clusters")),
        ValueError,
        "blocks: got 2 entries for 3 modes",
    ),
    (
        "unknown strategy of a mode",
        lambda: tk.ltr(X, 2, blocks=("segments", "best", None)),
        ValueError,
        "blocks: unknown 'best'; give one of",
    ),
    (
        "blocks of another size",
        lambda: tk.ltr(X, blocks=[tk.Blocks.uniform(5, 2), None, None]),
        ValueError,
        "mode 0: the given blocks are of 5 indices; give 2",
    ),
    # decompositions
    ("ntd without rank", lambda: tk.ntd(X), TypeError, "rank is missing; give an int, or one per mode"),
    ("ntd of bad values", lambda: tk.ntd(holding(-1.0), 2), ValueError, "x[1, 0, 3] is -1.0; every entry"),
    ("ntd of nan", lambda: tk.ntd(holding(np.nan), 2, loss="ls"), ValueError, "x[1, 0, 3] is nan"),
    ("ntd rank", lambda: tk.ntd(X, (2, 4, 2)), ValueError, "mode 1: rank 4 is larger than its size 3"),
    ("loss", lambda: tk.ntd(X, 2, loss="is"), ValueError, "loss: unknown 'is'; give one of 'kl', 'ls'"),
    (
        "init",
        lambda: tk.ntd(X, 2, init="svd"),
        ValueError,
        "init: unknown 'svd'; give one of 'auto', 'ltr', 'hosvd', 'random'",
    ),
    (
        "init number",
        lambda: tk.ntd(X, 2, init=3),
        TypeError,
        "init: cannot use 3; give 'auto', 'ltr', 'hosvd', 'random', a model",
    ),
    (
        "init of three",
        lambda: tk.ntd(X, 2, init=(1, 2, 3)),
        ValueError,
        "init: cannot be unpacked; give a model, or a core",
    ),
    (
        "init of another shape",
        lambda: tk.ntd(X, init=tk.ltr(X[:, :2], 2)),
        ValueError,
        "x has shape (2, 3, 4), but the model of init is of shape (2, 2, 4)",
    ),
    (
        "init of another rank",
        lambda: tk.ntd(X, 1, init=tk.ltr(X, 2)),
        ValueError,
        "rank (1, 1, 1) contradicts the model of init, which has (2, 2, 2); leave rank out",
    ),
    (
        "negative init",
        lambda: tk.ntd(X, init=(-np.ones((1, 1, 1)), [np.ones((n, 1)) for n in X.shape])),
        ValueError,
        "init: core[0, 0, 0] is -1.0; every entry",
    ),
    (
        "init without mass",
        lambda: tk.ntd(X, init=(np.zeros((1, 1, 1)), [np.ones((n, 1)) for n in X.shape])),
        ValueError,
        "init: the model has no mass, or too much to be summed; give one near the tensor",
    ),
    ("iterations", lambda: tk.ntd(X, 2, n_iter_max=0), ValueError, "n_iter_max: got 0; give an int from 1"),
    ("half an iteration", lambda: tk.ntd(X, 2, n_iter_max=1.5), ValueError, "n_iter_max: got 1.5; give an int from 1"),
    ("tolerance", lambda: tk.ntd(X, 2, tol=-1e-3), ValueError, "tol: got -0.001; give a number from 0"),
    ("no tolerance", lambda: tk.ntd(X, 2, tol=None), ValueError, "tol: got None; give a number from 0"),
    ("budget", lambda: tk.ntd(X, 2, budget=0), ValueError, "budget: got 0; give a number of seconds above 0, or None"),
    (
        "multilevel",
        lambda: tk.ntd(X, 2, multilevel="yes"),
        ValueError,
        "multilevel: got 'yes'; give 'auto', True or False",
    ),
    ("finest", lambda: tk.ntd(X, 2, finest=7), ValueError, "finest: got 7; give an int from 8, the core's size, or a"),
    ("finest name", lambda: tk.ntd(X, 2, finest="all"), ValueError, "finest: got 'all'; give an int from 8"),
    (
        "finest of another shape",
        lambda: tk.ntd(X[:, :2], 1, finest=PARTITION),
        ValueError,
        "x has shape (2, 2, 4), but the partition finest is of shape (2, 3, 4)",
    ),
    (
        "finest too coarse",
        lambda: tk.ntd(X, (2, 3, 2), finest=PARTITION),
        ValueError,
        "finest: mode 1 has 2 blocks for rank 3; give at least that many",
    ),
    ("preset", lambda: tk.ntd(X, 2, preset="old"), ValueError, "preset: unknown 'old'; give one of 'paper'"),
    (
        "preset and more",
        lambda: tk.ntd(X, 2, preset="paper", n_iter_max=50),
        ValueError,
        "preset='paper' has its own init, n_iter_max, tol, multilevel, finest; leave them out",
    ),
    (
        "ntd dtype",
        lambda: tk.ntd(X, 2, dtype=int),
        TypeError,
        "dtype: cannot use <class 'int'>; give float32 or float64",
    ),
    ("ntd workers", lambda: tk.ntd(X, 2, workers=0), ValueError, "workers: got 0; give an int from 1"),
    (
        "a keyword of TensorLy",
        lambda: tk.ntd(X, 2, random_state=0),
        TypeError,
        "ntd: there is no argument 'random_state'; it is called 'rng' here",
    ),
    ("a keyword of none", lambda: tk.ltr(X, 2, nonsense=0), TypeError, "unexpected keyword argument 'nonsense'"),
    ("lra_sntd rank", lambda: tk.lra_sntd(X, (5, 1, 1)), ValueError, "mode 0: rank 5 is larger than its size 2"),
    ("lra_sntd values", lambda: tk.lra_sntd(holding(np.inf), 2), ValueError, "x[1, 0, 3] is inf"),
    ("lra_sntd rng", lambda: tk.lra_sntd(X, 2, rng="a"), TypeError, "rng: cannot use 'a'; give None"),
    (
        "ntd beyond float32",
        lambda: tk.ntd(np.diag([1e30, 1e-30, 1.0]) + 1e-20, 3, dtype="f4"),
        ValueError,
        "dtype: in float32 the loss is inf instead of",
    ),
    # geometry
    (
        "theta of a zero",
        lambda: geometry.theta(holding(0.0)),
        ValueError,
        "x[1, 0, 3] is 0.0; every entry must be finite and positive, since its logarithm is taken",
    ),
    ("theta of nan", lambda: geometry.theta(holding(np.nan)), ValueError, "x[1, 0, 3] is nan; every entry"),
    ("eta of a negative", lambda: geometry.eta(holding(-1.0)), ValueError, "x[1, 0, 3] is -1.0; every entry must be"),
    ("eta too large", lambda: geometry.eta([1e308, 1e308]), ValueError, "x: its total is too large for float64"),
    (
        "theta too large",
        lambda: geometry.from_theta([800.0]),
        ValueError,
        "theta: entry (0,) of the tensor would be exp(",
    ),
    ("theta not finite", lambda: geometry.from_theta([0, np.inf]), ValueError, "theta[1] is inf; give finite numbers"),
    ("no such eta", lambda: geometry.from_eta([1.0, 2.0]), ValueError, "eta: entry (0,) of the tensor would be -1; no"),
    (
        "bingos of free blocks",
        lambda: geometry.bingo_indices(tk.Partition.from_labels([[0, 1, 0]])),
        ValueError,
        "mode 0: the blocks are not contiguous; order the indices by block, and give",
    ),
    (
        "zero projected",
        lambda: geometry.m_project(holding(0.0), PARTITION),
        ValueError,
        "x[1, 0, 3] is 0.0; every entry",
    ),
    (
        "partition of another shape",
        lambda: geometry.legendre(X[0], PARTITION),
        ValueError,
        "x has shape (3, 4), but the partition is of shape (2, 3, 4)",
    ),
    (
        "basis of another shape",
        lambda: geometry.legendre(X, np.ones((2, 2), bool)),
        ValueError,
        "x has shape (2, 3, 4), but the basis is of shape (2, 2)",
    ),
    (
        "basis outside",
        lambda: geometry.legendre(X, [(0, 3, 0)]),
        ValueError,
        "basis: index (0, 3, 0) is outside of shape",
    ),
    (
        "basis too large",
        lambda: geometry.legendre(np.ones((17, 17, 17)), np.ones((17, 17, 17), bool)),
        ValueError,
        "basis: 4912 parameters are free; give at most 4000, or method='gradient'",
    ),
    (
        "method",
        lambda: geometry.legendre(X, PARTITION, method="sgd"),
        ValueError,
        "method: unknown 'sgd'; give 'natural'",
    ),
    (
        "no such mode",
        lambda: geometry.many_body(X, [(0, 3)]),
        ValueError,
        "interactions: cannot use (0, 3); give modes from",
    ),
    ("geodesic kind", lambda: geometry.geodesic(X, X, 0.5, "x"), ValueError, "kind: unknown 'x'; give 'm' or 'e'"),
    (
        "geodesic too far",
        lambda: geometry.geodesic([1, 2], [2, 1], 3),
        ValueError,
        "t: got 3, where the m-geodesic has left",
    ),
    ("geodesic shapes", lambda: geometry.geodesic(X, X[0], 0.5), ValueError, "q has shape (3, 4), but p is of shape"),
    ("one body of nothing", lambda: geometry.one_body(np.zeros(3)), ValueError, "x is zero everywhere; there is no"),
    (
        "one body eta",
        lambda: geometry.one_body_theta([1, 1]),
        ValueError,
        "eta: its entries must fall, to a positive last",
    ),
    (
        "weights",
        lambda: geometry.boltzmann([0, 0], [[0, 1], [2, 0]]),
        ValueError,
        "weights: the matrix is not symmetric",
    ),
    (
        "weights shape",
        lambda: geometry.boltzmann([0, 0], [[0]]),
        ValueError,
        "weights: got shape (1, 1); give a matrix of 2",
    ),
    (
        "bias",
        lambda: geometry.boltzmann(np.zeros(21), np.zeros((21, 21))),
        ValueError,
        "bias: got shape (21,); give one",
    ),
    ("damping", lambda: geometry.mean_field([0], [[0]], damping=1), ValueError, "damping: got 1; give a number from 0"),
    # ranges
    (
        "model too large",
        lambda: tk.Tucker([[1e300, 0]], [[[1e200]], [[1e10, 0], [0, 1]]]),
        ValueError,
        "are together too large for float64",
    ),
    (
        "factor beyond float32",
        lambda: tk.Tucker(np.ones(1, "f4"), [[[1e300], [1.0]]]),
        ValueError,
        "factors[0] holds 1e+300, which is out of float32's range",
    ),
    (
        "weights below float32",
        lambda: tk.ltr([[1.0, 1e-50]], (1, 2), dtype="f4"),
        ValueError,
        "holds 1e-50, which is out of float32's range; keep float64",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_message(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)) as caught:
        call()
    assert type(caught.value) is kind


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("index", [(0, 0, 0), (199, 99, 149), (100, 50, 75), (67, 3, 0)])
def test_a_bad_entry_of_a_large_tensor_is_found(value: float, index: tuple[int, ...]) -> None:
    x = np.ones((200, 100, 150))
    x[index] = value
    with pytest.raises(ValueError, match=re.escape(f"x[{', '.join(map(str, index))}] is {value};")):
        tk.ltr(x, 10)


def test_the_real_tensor_with_negative_values_is_refused(data: Any) -> None:
    x = np.load(data / "kinetic.npy")
    index = tuple(np.argwhere(x < 0)[0])
    with pytest.raises(ValueError, match=re.escape(f"x[{', '.join(map(str, index))}] is {x[index]}")):
        tk.ltr(x, 3)
    assert tk.ltr(np.maximum(x, 0), 3).rank == (3, 3, 3, 3)


def test_the_real_tensor_with_missing_values_is_refused(data: Any) -> None:
    x = np.load(data / "il2_response.npy")
    index = tuple(np.argwhere(~(x >= 0))[0])
    with pytest.raises(ValueError, match=re.escape(f"x[{', '.join(map(str, index))}] is {x[index]}")):
        tk.ltr(x, 3)
