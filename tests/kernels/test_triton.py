"""The Triton kernels: on a GPU where there is one, else in the interpreter."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tucket as tk

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tucket.kernels import numpy as plain  # noqa: E402
from tucket.kernels import updates  # noqa: E402
from tucket.kernels.gpu import layout as layouts  # noqa: E402
from tucket.kernels.gpu import passes as kernels  # noqa: E402
from tucket.kernels.gpu import recorded as recordings  # noqa: E402
from tucket.kernels.gpu.recorded import Recorded, recording_of  # noqa: E402
from tucket.kernels.gpu.sums import FLOAT64  # noqa: E402
from tucket.sources.dense import is_kept as kept_in_float32  # noqa: E402
from tucket.sources.reductions import is_finite  # noqa: E402

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") else "cuda"

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),  # raised by the interpreter itself
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning"),
]

LAYOUTS = ["C", "Fortran", "every second", "turned", "repeated", "cropped"]


def lay(x: NDArray[Any], layout: str) -> Any:
    """Return a tensor of the same entries, or of some of them, that lies otherwise in memory."""
    tensor = torch.from_numpy(x.copy()).to(DEVICE)
    if layout == "Fortran":
        return tensor.permute(*range(x.ndim)[::-1]).contiguous().permute(*range(x.ndim)[::-1])
    if layout == "every second":
        return tensor.repeat_interleave(2, dim=x.ndim - 1)[..., ::2]
    if layout == "turned":
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "cropped":
        return torch.nn.functional.pad(tensor, (0, 2) * x.ndim)[tuple(slice(0, size) for size in x.shape)]
    if layout == "repeated":
        return tensor[:1].expand(x.shape)
    return tensor


def draw(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> NDArray[Any]:
    x = rng.integers(0, 100, shape) if np.dtype(dtype).kind in "iu" else 10 * rng.random(shape)
    x[..., -1] *= x.shape[-1] == 1
    return x.astype(dtype)


def partitions(shape: tuple[int, ...], rank: tuple[int, ...], rng: np.random.Generator) -> list[tk.Partition]:
    contiguous = tk.Partition.random(shape, rank, rng)
    return [contiguous, tk.Partition.from_labels([rng.permutation(blocks.labels) for blocks in contiguous.modes])]


def same_sums(found: Any, expected: Any, tolerance: float) -> None:
    np.testing.assert_allclose(found.core, expected.core, rtol=tolerance)
    for ours, theirs in zip(found.marginals, expected.marginals, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance)
    assert found.has_negative == expected.has_negative
    if expected.moments is not None:
        np.testing.assert_allclose(found.moments, expected.moments, rtol=max(tolerance, 1e-12))


CASES = [
    ((7,), (3,)),
    ((5, 6), (5, 2)),
    ((4, 1, 6), (2, 1, 3)),
    ((1, 1), (1, 1)),
    ((3, 1, 2, 18, 30), (2, 1, 2, 3, 2)),
    ((2, 600), (1, 3)),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "rank"), CASES)
def test_every_layout(shape: tuple[int, ...], rank: tuple[int, ...], layout: str) -> None:
    rng = np.random.default_rng(0)
    for partition in partitions(shape, rank, rng):
        tensor = lay(draw(shape, "f8", rng), layout)
        x = np.array(tensor.cpu())
        same_sums(kernels.block_sums(tensor, partition, 2.0), plain.block_sums(x, partition, 2.0), 1e-13)
        model = tk.ltr(x, blocks=partition)
        out = lay(np.full(shape, -1.0), "Fortran" if layout == "Fortran" else "C")
        kernels.write(out, model.core, partition, model.weights)
        np.testing.assert_allclose(out.cpu(), model.to_tensor(), rtol=1e-14)
        residual, norm, negative = kernels.residual(tensor, model.core, partition, model.weights, 4.0)
        assert not negative
        assert np.sqrt(residual / norm) == pytest.approx(model.relative_error(x), rel=1e-12)
        assert norm * 16 == pytest.approx((x**2).sum())
        core, weights, found = kernels.project(tensor, partition)
        assert found.is_fine()
        np.testing.assert_allclose(core.cpu(), model.core, rtol=1e-13)
        for ours, theirs in zip(weights, model.weights, strict=True):
            np.testing.assert_allclose(ours.cpu(), theirs, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "u1", "i1", "u2", "i2", "i4", "u4", "i8", "bfloat16", "bool"])
def test_every_type(dtype: str) -> None:
    rng = np.random.default_rng(1)
    x = draw((4, 5, 60), "f4" if dtype in ("bfloat16", "bool") else dtype, rng)
    tensor = torch.from_numpy(x).to(DEVICE)
    if dtype in ("bfloat16", "bool"):
        tensor = tensor.to(getattr(torch, dtype))
        x = np.array(tensor.to(torch.float64).cpu())
    partition = tk.Partition.uniform(x.shape, (2, 2, 7))
    expected = plain.block_sums(x.astype(np.float64), partition, 1.0)
    exact = np.dtype("f8" if dtype in ("bfloat16", "bool") else dtype).kind in "iu"
    same_sums(kernels.block_sums(tensor, partition, None), expected._replace(moments=None), 0 if exact else 1e-6)
    same_sums(kernels.block_sums(tensor, partition, 1.0), expected, 1e-5)
    model = tk.ltr(x, blocks=partition)
    residual, norm, _ = kernels.residual(tensor, model.core, partition, model.weights)
    assert np.sqrt(residual / norm) == pytest.approx(model.relative_error(x), rel=1e-9)


def test_sums_for_a_divergence() -> None:
    rng = np.random.default_rng(4)
    for scale in (1.0, 1e-9, 1e9):
        x = scale * draw((4, 5, 60), "f8", rng)
        for partition in partitions(x.shape, (2, 2, 7), rng):
            model = tk.ltr(x, blocks=partition)
            core = torch.from_numpy(model.core.copy()).to(DEVICE)
            weights = [torch.from_numpy(vector.copy()).to(DEVICE) for vector in model.weights]
            weights[0] *= 1.5  # no longer shares of a block
            core /= 1.5
            tensor = torch.from_numpy(x.copy()).to(DEVICE)
            found, low, total, _ = kernels.divergence(tensor, partition, core, weights, FLOAT64).tolist()
            assert low == 0
            assert total == pytest.approx(x.sum())
            assert found == pytest.approx(model.kl(x), rel=1e-9)
            tensor[2, 3, 40] = -scale
            assert kernels.divergence(tensor, partition, core, weights, FLOAT64)[1] == -scale


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf, -np.inf])
def test_bad_entries_are_noticed(bad: float) -> None:
    x = np.random.default_rng(0).random((3, 4, 50))
    x[1, 2, 30] = bad
    partition = tk.Partition.uniform(x.shape, 2)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        tensor = torch.from_numpy(x).to(DEVICE, dtype)
        sums = kernels.block_sums(tensor, partition, None)
        assert sums.has_negative or not is_finite(sums)
        assert not kernels.project(tensor, partition)[-1].is_fine()


def test_a_tile_may_be_too_much_for_float32() -> None:
    tensor = torch.full((2, 40), 3e38, dtype=torch.float32, device=DEVICE)
    sums = kernels.block_sums(tensor, tk.Partition.uniform((2, 40), (1, 2)), None)
    np.testing.assert_allclose(sums.core, [[40 * 3e38] * 2], rtol=1e-6)


def test_a_row_may_be_too_much_for_float32() -> None:
    tensor = torch.full((2, 600), 1e37, dtype=torch.float32, device=DEVICE)
    partition = tk.Partition.uniform((2, 600), (1, 600))
    sums = kernels.block_sums(tensor, partition, None)
    np.testing.assert_allclose(sums.marginals[0], [600 * 1e37] * 2, rtol=1e-6)
    assert not kernels.project(tensor, partition)[-1].is_fine()


@pytest.mark.parametrize(("dtype", "entry"), [(torch.float64, 1e291), (torch.float32, 1e36)])
def test_sums_that_may_be_too_large_are_looked_at_again(dtype: Any, entry: float) -> None:
    tensor = torch.full((2, 40), entry, dtype=dtype, device=DEVICE)
    partition = tk.Partition.uniform((2, 40), 2)
    assert not kernels.project(tensor, partition)[-1].is_fine()
    assert kernels.core(tensor, partition) is None
    np.testing.assert_allclose(kernels.block_sums(tensor, partition, None).core, np.full((2, 2), 20 * entry), rtol=1e-6)
    assert kernels.project(tensor * 1e-3, partition)[-1].is_fine()


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.1])
def test_the_divergence_of_a_close_model_is_exact(noise: float) -> None:
    rng = np.random.default_rng(8)
    x = np.multiply.outer(rng.random(6), rng.random(200)) * (1 + noise * rng.random((6, 200)))
    x = x.astype(np.float32)
    model = tk.ltr(x, 1)
    core, *weights = (torch.from_numpy(part.copy()).to(DEVICE) for part in (model.core, *model.weights))
    doubled = [torch.stack((vector, vector), 1)[:, 0] for vector in weights]  # not one after another in memory
    for vectors in (weights, doubled):
        found = kernels.divergence_of(torch.from_numpy(x).to(DEVICE), model.partition, core, vectors)
        assert found == pytest.approx(tk.metrics.kl(x, model.to_tensor()), rel=1e-5, abs=1e-10)
        out = torch.zeros(x.shape, dtype=torch.float64, device=DEVICE)
        kernels.write(out, core, model.partition, vectors)
        np.testing.assert_allclose(out.cpu(), model.to_tensor(), rtol=1e-14)


@pytest.mark.skipif(DEVICE == "cpu", reason="only on a GPU are numbers sent ahead")
def test_where_new_tensors_are_made_is_up_to_the_user() -> None:
    with torch.device(DEVICE):
        x = torch.rand((4, 5, 60))
        model: Any = tk.ltr(x, 2, blocks="uniform")
        assert model.kl(x) == pytest.approx(tk.ltr(x.cpu().numpy(), 2, blocks="uniform").kl(x.cpu().numpy()), rel=1e-5)


@pytest.mark.parametrize("dtype", ["f4", "u2"])
def test_modes_that_know_hardly_anything_of_each_other(dtype: str) -> None:
    """Of logarithms of float32 nothing would be left."""
    rng = np.random.default_rng(9)
    x = 1e4 * np.multiply.outer(1 + rng.random(20), 1 + rng.random(300)) * (1 + 1e-3 * rng.random((20, 300)))
    x = x.astype(dtype)
    partition = tk.Partition.uniform(x.shape, 1)
    found = kernels.block_sums(torch.from_numpy(x).to(DEVICE), partition, 2.0**14)
    expected = plain.block_sums(x.astype(np.float64), partition, 2.0**14)
    assert not found.low_precision
    assert found.moments is not None
    assert expected.moments is not None
    assert found.moments.v_log_v == pytest.approx(expected.moments.v_log_v, rel=1e-13)


@pytest.mark.parametrize(("dtype", "scale"), [("f4", 1e-38), ("f4", 1e-41), ("f8", 1e-305), ("f8", 1e-314)])
def test_logarithms_of_the_smallest_numbers(dtype: str, scale: float) -> None:
    x = (scale * (1 + np.random.default_rng(0).random((3, 40)) ** 9)).astype(dtype)
    partition = tk.Partition.uniform(x.shape, 2)
    tensor = torch.from_numpy(x).to(DEVICE)
    for unit in (1.0, 2.0 ** max(-1022, round(float(np.log2(scale))))):
        found = kernels.block_sums(tensor, partition, unit).moments
        expected = plain.block_sums(x.astype(np.float64), partition, unit).moments
        assert found is not None
        assert expected is not None
        assert found.v_log_v == pytest.approx(expected.v_log_v, rel=1e-5, abs=0)
    model = tk.ltr(x.astype(np.float64), blocks=partition)
    core, *weights = (torch.from_numpy(part.copy()).to(DEVICE) for part in (model.core, *model.weights))
    assert kernels.divergence_of(tensor, partition, core, weights) == pytest.approx(model.kl(x), rel=1e-5, abs=0)


@pytest.mark.parametrize(("dtype", "scale", "far"), [("f4", 1e30, 1e-30), ("f4", 1.0, 1e-39), ("u2", 1e3, 1e-39)])
def test_the_divergence_of_a_model_far_below_is_exact(dtype: str, scale: float, far: float) -> None:
    x = np.where(np.eye(30), scale * np.random.default_rng(0).random((30, 30)), 0).astype(dtype)
    model = tk.ltr(far * np.ones((30, 30)), 2, blocks="uniform")
    core, *weights = (torch.from_numpy(part.copy()).to(DEVICE) for part in (model.core, *model.weights))
    tensor = torch.from_numpy(x).to(DEVICE)
    assert kernels.divergence_of(tensor, model.partition, core, weights) == pytest.approx(model.kl(x), rel=1e-6)
    found = kernels.block_sums(tensor, model.partition, far).moments
    expected = plain.block_sums(x.astype(np.float64), model.partition, far).moments
    assert found is not None
    assert expected is not None
    assert found.v_log_v == pytest.approx(expected.v_log_v, rel=1e-6)


def test_few_rows_are_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "PASS_ROWS", 10)
    assert kernels.piece_entries(torch.empty((30, 600), device=DEVICE)) == 6000
    assert kernels.piece_entries(torch.empty((10, 600), device=DEVICE)) == 1 << 33
    assert kernels.piece_entries(torch.empty((40, 5, 20), device=DEVICE)[..., :3]) == 30
    monkeypatch.setattr(kernels, "PIECE_ENTRIES", 1000)
    assert kernels.piece_entries(torch.empty((40, 600), device=DEVICE)) == 1000


def test_tiny_numbers() -> None:
    x = np.random.default_rng(0).random((3, 40)) * 1e-200
    partition = tk.Partition.uniform(x.shape, 2)
    same_sums(
        kernels.block_sums(torch.from_numpy(x).to(DEVICE), partition, 1e-200),
        plain.block_sums(x, partition, 1e-200),
        1e-12,
    )
    x[1, 2] = -1e-250
    assert kernels.block_sums(torch.from_numpy(x).to(DEVICE), partition, None).has_negative


CONSTANTS = {
    "ROW_COLUMNS": (1, 4, 16, 64, 512),
    "LONG_COLUMNS": (8, 64, 1 << 14),
    "LONGEST_COLUMNS": (32, 1 << 24),
    "NARROW_COLUMNS": (2, 16),
    "CHUNK_ROWS": (1, 2, 8, 512),
    "FULL_CHUNKS": (1, 8, 1 << 14),
    "PIECE_COLUMNS": (1, 8, 1024),
    "SHORT_CHUNK_ROWS": (1, 8),
    "WIDE_BLOCK_COLUMNS": (2, 8, 128),
    "TABLE_ENTRIES": (16, 256, 1 << 25),
}


@pytest.mark.skipif(DEVICE != "cpu", reason="every size of a tile would have to be compiled")
@settings(max_examples=40)
@given(st.data())
def test_nothing_beside_a_tensor_is_read_or_written(data: st.DataObject) -> None:
    """Tensors that lie anyhow amid numbers that are none, and memory that is full of them, in layouts of all kinds."""
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 8, 16]), min_size=1, max_size=4)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    steps, pads = rng.choice([1, 1, 2, 3], len(shape)), rng.choice([0, 0, 1, 2], len(shape))
    order = rng.permutation(len(shape))
    around = torch.full([int(shape[k] * steps[k] + pads[k]) for k in order], torch.nan, dtype=torch.float64)
    inside = tuple(slice(0, int(shape[k] * steps[k]), int(steps[k])) for k in order)
    tensor = around[inside].permute(*np.argsort(order).tolist())
    tensor.copy_(torch.from_numpy(rng.random(shape) * (rng.random(shape) < 0.8)))
    x = tensor.numpy().copy()
    partition = partitions(shape, tuple(int(rng.integers(1, size + 1)) for size in shape), rng)[int(rng.integers(2))]
    empty, empty_like = torch.empty, torch.empty_like
    with pytest.MonkeyPatch.context() as patch:
        for name, values in CONSTANTS.items():
            patch.setattr(layouts, name, data.draw(st.sampled_from(values)))
        patch.setattr(kernels, "TABLE_ENTRIES", layouts.TABLE_ENTRIES)
        patch.setattr(layouts, "_layouts", {})
        patch.setattr(torch, "empty", lambda *args, **options: spoiled(empty(*args, **options)))
        patch.setattr(torch, "empty_like", lambda *args, **options: spoiled(empty_like(*args, **options)))
        same_sums(kernels.block_sums(tensor, partition, 2.0), plain.block_sums(x, partition, 2.0), 1e-12)
        model = tk.ltr(x, blocks=partition)
        residual, norm, _ = kernels.residual(tensor, model.core, partition, model.weights)
        expected = ((x - model.to_tensor()) ** 2).sum(), (x**2).sum()
        np.testing.assert_allclose((residual, norm), expected, rtol=1e-9, atol=1e-12)
        kernels.write(tensor, model.core, partition, model.weights)
    np.testing.assert_allclose(tensor, model.to_tensor(), rtol=1e-13)
    assert int(torch.isnan(around).sum()) == around.numel() - x.size


def spoiled(tensor: Any) -> Any:
    """Fill what is not written yet with what would not go unnoticed."""
    if tensor.device.type == "meta":
        return tensor
    return tensor.fill_(torch.nan if tensor.is_floating_point() else -(10**6))


def test_many_rows_are_counted_in_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "_layouts", {})
    made = layouts.Layout

    class Many(made):  # type: ignore[misc, valid-type]
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.view: Any = self.view._replace(int64_columns=True)
            self.rows.int64, self.rows.sorted = True, self.rows.sorted.to(torch.int64)

    monkeypatch.setattr(layouts, "Layout", Many)
    rng = np.random.default_rng(5)
    x = draw((5, 6, 30), "f8", rng)
    for partition in partitions(x.shape, (2, 3, 4), rng):
        tensor = torch.from_numpy(x).to(DEVICE)
        same_sums(kernels.block_sums(tensor, partition, 1.0), plain.block_sums(x, partition, 1.0), 1e-13)
        model = tk.ltr(x, blocks=partition)
        out = torch.zeros(x.shape, dtype=torch.float64, device=DEVICE)
        kernels.write(out, model.core, partition, model.weights)
        np.testing.assert_allclose(out.cpu(), model.to_tensor())
        residual, norm, _ = kernels.residual(tensor, model.core, partition, model.weights)
        assert np.sqrt(residual / norm) == pytest.approx(model.relative_error(x))


def test_narrow_tensors_have_short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "LONG_COLUMNS", 200)
    monkeypatch.setattr(layouts, "LONGEST_COLUMNS", 400)
    assert layouts.RowView.of((30, 16), (16, 1)).columns == 16
    assert layouts.RowView.of((10, 16), (16, 1)).columns == 160
    assert layouts.RowView.of((30, 10), (10, 1)).columns == 300
    assert layouts.RowView.of((60, 10), (10, 1)).columns == 10


@pytest.mark.parametrize(("columns", "stride", "unit"), [(2000, 2000, 1), (1000, 1000, 8), (20, 26, 2), (999, 1000, 1)])
def test_rows_are_read_in_units(columns: int, stride: int, unit: int) -> None:
    assert layouts.RowView.of((7, columns), (stride, 1)).unit == unit


def test_rows_that_are_cropped_are_read_in_units_too() -> None:
    view = layouts.RowView.of((3, 7, 2000), (32000, 3200, 1))
    assert view.has_gaps
    assert view.unit == 16


def test_one_entry_may_be_a_long_row() -> None:
    assert layouts.RowView.of((3_000_000_000,), (0,)).int64_columns


def test_what_float32_cannot_hold_is_noticed() -> None:
    for entry, is_kept in ((0.0, True), (1e-30, True), (1e30, True), (1e-50, False), (1e39, False)):
        whole = [
            torch.ones((2, 2), dtype=torch.float64, device=DEVICE),
            torch.tensor([1.0, entry], dtype=torch.float64, device=DEVICE),
        ]
        assert kept_in_float32(whole, [part.float() for part in whole]) == is_kept


@pytest.mark.parametrize("room", [64, 200])
@pytest.mark.parametrize(
    ("shape", "rank"), [((3, 200), (2, 5)), ((9, 200), (9, 40)), ((6, 7, 5), (3, 7, 2)), ((300,), (2,))]
)
def test_sums_that_are_taken_batch_by_batch(
    shape: tuple[int, ...], rank: tuple[int, ...], room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "TABLE_ENTRIES", room)
    monkeypatch.setattr(kernels, "TABLE_ENTRIES", room)
    monkeypatch.setattr(layouts, "CHUNK_ROWS", 1)
    monkeypatch.setattr(layouts, "ROW_COLUMNS", 1)
    monkeypatch.setattr(layouts, "_layouts", {})
    rng = np.random.default_rng(2)
    x = draw(shape, "f8", rng)
    for partition in partitions(shape, rank, rng):
        tensor = torch.from_numpy(x.copy()).to(DEVICE)
        layout = layouts.layout_of(tensor, partition)
        assert len(layout.batches) > 1 or room > 64 or len(shape) == 1
        assert all(len(batch.ends) == batch.last_group - batch.first_group + 1 for batch in layout.batches)
        same_sums(kernels.block_sums(tensor, partition, 1.0), plain.block_sums(x, partition, 1.0), 1e-12)
        core, weights, found = kernels.project(tensor, partition)
        assert found.is_fine()
        model = tk.ltr(x, blocks=partition)
        np.testing.assert_allclose(core.cpu(), model.core, rtol=1e-12)
        for ours, theirs in zip(weights, model.weights, strict=True):
            np.testing.assert_allclose(ours.cpu(), theirs, rtol=1e-12)
        out = torch.full(shape, -1.0, dtype=torch.float64, device=DEVICE)
        kernels.write(out, model.core, partition, model.weights)
        np.testing.assert_allclose(out.cpu(), model.to_tensor(), rtol=1e-13)
        tensor.reshape(-1)[-2] = -5
        assert kernels.block_sums(tensor, partition, None).has_negative
        assert not kernels.project(tensor, partition)[-1].is_fine()
        tensor.reshape(-1)[-2] = np.nan
        assert not kernels.project(tensor, partition)[-1].is_fine()


ROWS_FIRST = [((300,), (5,)), ((3, 200), (2, 3)), ((3, 2, 60), (3, 2, 1)), ((2, 3, 20, 9), (2, 3, 1, 2))]


@pytest.mark.parametrize("layout", ["C", "every second", "cropped", "in batches"])
@pytest.mark.parametrize(("shape", "rank"), ROWS_FIRST)
def test_rows_are_added_up_first_where_groups_are_small(
    shape: tuple[int, ...], rank: tuple[int, ...], layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if layout == "in batches":
        monkeypatch.setattr(layouts, "TABLE_ENTRIES", 100)
        monkeypatch.setattr(layouts, "CHUNK_ROWS", 1)
    monkeypatch.setattr(layouts, "PIECE_COLUMNS", 64)
    monkeypatch.setattr(layouts, "WIDE_BLOCK_COLUMNS", 8)
    monkeypatch.setattr(layouts, "_layouts", {})
    rng = np.random.default_rng(6)
    for dtype in ("f8", "u1") if layout == "C" else ("f8",):
        for partition in partitions(shape, rank, rng):
            tensor = lay(draw(shape, dtype, rng), layout)
            if layout == "C":
                assert layouts.layout_of(tensor, partition).row_sums_layout is not None
            x = np.array(tensor.cpu()).astype(np.float64)
            expected = plain.block_sums(x, partition, 2.0)
            same_sums(kernels.block_sums(tensor, partition, 2.0), expected, 1e-13 if dtype == "f8" else 1e-5)
            core, weights, _ = kernels.project(tensor, partition)
            model = tk.ltr(x, blocks=partition)
            np.testing.assert_allclose(core.cpu(), model.core, rtol=1e-6)
            for ours, theirs in zip(weights, model.weights, strict=True):
                np.testing.assert_allclose(ours.cpu(), theirs, rtol=1e-6)


def test_an_entry_below_0_is_noticed_where_rows_are_added_up_first() -> None:
    x = torch.ones((2, 9000), device=DEVICE)
    partition = tk.Partition.uniform((2, 9000), 2)
    assert layouts.layout_of(x, partition).row_sums_layout is not None
    assert not kernels.block_sums(x, partition, None).has_negative
    x[1, 8000] = -1
    assert kernels.block_sums(x, partition, None).has_negative


def test_long_blocks_are_added_up_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "PIECE_COLUMNS", 8)
    monkeypatch.setattr(layouts, "_layouts", {})
    rng = np.random.default_rng(7)
    x = draw((20, 600), "f8", rng)
    for partition in partitions(x.shape, (2, 5), rng):
        tensor = torch.from_numpy(x).to(DEVICE)
        layout = layouts.layout_of(tensor, partition)
        assert layout.row_sums_layout is None
        assert layout.columns.n_chunks > layout.columns.n_groups
        same_sums(kernels.block_sums(tensor, partition, 1.0), plain.block_sums(x, partition, 1.0), 1e-13)


def test_many_rows_make_longer_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "CHUNK_ROWS", 4)
    monkeypatch.setattr(layouts, "FULL_CHUNKS", 2)
    monkeypatch.setattr(layouts, "_layouts", {})
    rng = np.random.default_rng(3)
    x = draw((5, 6, 7), "f8", rng)
    monkeypatch.setattr(layouts, "ROW_COLUMNS", 1)
    for partition in partitions(x.shape, (2, 3, 2), rng):
        same_sums(
            kernels.block_sums(torch.from_numpy(x).to(DEVICE), partition, None),
            plain.block_sums(x, partition, None),
            1e-13,
        )


def test_the_same_sums_each_time() -> None:
    x = torch.rand((6, 7, 80), device=DEVICE)
    partition = tk.Partition.uniform(tuple(x.shape), 3)
    first, second = (kernels.block_sums(x, partition, 1.0) for _ in range(2))
    np.testing.assert_array_equal(first.core, second.core)
    assert first.moments == second.moments


def test_few_layouts_are_kept() -> None:
    x = torch.ones((40, 3), device=DEVICE)
    for rank in range(1, 30):
        kernels.block_sums(x, tk.Partition.uniform((40, 3), (rank, 1)), None)
    assert len(layouts._layouts) <= layouts.KEPT_LAYOUTS


def test_layouts_that_are_kept_are_not_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "_layouts", {})
    monkeypatch.setattr(layouts, "KEPT_ENTRIES", 500)
    for size in (40, 50, 60, 2000, 70):
        layout = layouts.layout_of(torch.ones((size, 3), device=DEVICE), tk.Partition.uniform((size, 3), 2))
        kept = list(layouts._layouts.values())
        assert kept[-1] is layout
        assert len(kept) == 1 or sum(each.size for each in kept) <= 500
    assert len(kept) == 1


@pytest.mark.parametrize(("count", "rank"), [(5, 1), (7, 3), (3, 33)])
def test_rows_descend_as_on_the_host(count: int, rank: int) -> None:
    rng = np.random.default_rng(0)
    core, targets, rows = rng.random((rank, 2 * rank)), rng.normal(size=(count, rank)), rng.random((count, rank))
    core[0] = 0 if rank > 1 else 1  # a component without mass stays as it is
    gram = core @ core.T
    expected = updates.descend_rows(targets, gram, rows, 30, 1e-6)
    there = [torch.from_numpy(array).to(DEVICE) for array in (targets, gram, rows)]
    found = kernels.descend_rows(there[0], there[1], there[2], 30, 1e-6).cpu().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert (found == 0).any()
    np.testing.assert_array_equal(there[2].cpu().numpy(), rows)


@pytest.mark.skipif(DEVICE == "cpu", reason="only a GPU records")
def test_what_is_recorded_is_played_back() -> None:
    constant = torch.full((3,), 2.0, device=DEVICE)

    def work(a: Any, b: Any) -> tuple[Any, ...]:
        return a * constant, a + b

    recorded = Recorded(work)
    pairs = [(torch.rand(3, device=DEVICE), torch.rand(3, device=DEVICE)) for _ in range(5)]
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.synchronize()
        found = [recorded(*pair) for pair in pairs]
        torch.cuda.synchronize()
    assert recorded.graph is not None
    for pair, results in zip(pairs, found):  # later results must not overwrite earlier ones
        for result, expected in zip(results, work(*pair), strict=True):
            torch.testing.assert_close(result, expected)


def test_recordings_are_kept_for_arrays_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "KEPT_RECORDINGS", 3)

    def work(by: int, a: Any) -> tuple[Any, ...]:
        return (by * a,)

    for size in (3, 3, 3, 4, 3, 5, 6, 7, 3):
        for by in (2, 5):
            a = torch.rand(size, device=DEVICE)
            torch.testing.assert_close(recording_of(work, (by,), a)[0], by * a)
    assert len(recordings._kept.recordings) == 3


@pytest.mark.skipif(DEVICE == "cpu", reason="only a GPU records")
def test_entries_of_recordings_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "KEPT_ENTRIES", 100)
    for size in (20, 30, 60, 30):
        for _ in range(3):
            recording_of(lambda a: (3 * a,), (), torch.ones(size, device=DEVICE))
        assert sum(each.size for each in recordings._kept.recordings.values()) <= 100


@pytest.mark.skipif(DEVICE == "cpu", reason="only a GPU records")
def test_what_is_recorded_without_gradients_is_played_back_with_them() -> None:
    recorded, x = Recorded(lambda a: (a * 3,)), torch.ones(3, device=DEVICE)
    with torch.inference_mode():
        for _ in range(3):
            recorded(x)
    assert float(recorded(x)[0].sum()) == 9


@pytest.mark.skipif(DEVICE == "cpu", reason="only a GPU records")
def test_models_of_tensors_of_one_shape_are_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    tensors = [torch.from_numpy(rng.random((30, 20, 10)) ** power).to(DEVICE) for power in (1, 3, 9)]
    found = [tk.ntd(x, 3, loss=loss, n_iter_max=9).loss for loss in ("kl", "ls") for x in tensors for _ in range(2)]
    held = torch.cuda.memory_allocated() - copied()
    monkeypatch.setattr("tucket.decomposition.data.array.RECORDED_ENTRIES", 0)
    plain = [tk.ntd(x, 3, loss=loss, n_iter_max=9).loss for loss in ("kl", "ls") for x in tensors for _ in range(2)]
    assert found == pytest.approx(plain, rel=1e-9)
    large = torch.rand((200, 100, 100), device=DEVICE)
    monkeypatch.undo()
    tk.ntd(large, 3, n_iter_max=3)
    del large
    assert copied() > 2e6 * 4
    assert torch.cuda.memory_allocated() - copied() < held + 4e6  # of the tensor itself nothing is kept


def copied() -> int:
    """Return the bytes of all arrays that recordings keep."""
    return sum(array.nbytes for each in recordings._kept.recordings.values() for array in each.inputs)


@pytest.mark.skipif(DEVICE == "cpu", reason="only a GPU records")
def test_what_cannot_be_recorded_goes_on() -> None:
    calls = 0

    def work(a: Any) -> tuple[Any, ...]:
        nonlocal calls
        calls += 1
        found = (a * 3,)
        if calls == 2:
            raise torch.cuda.OutOfMemoryError
        return found

    recorded, x = Recorded(work), torch.ones(3, device=DEVICE)
    for call in range(1, 7):
        assert float(recorded(x)[0].sum()) == 9
        assert (recorded.graph is None) == (recorded.size == 0) == (call < 4)
    assert float(torch.rand(1 << 20, device=DEVICE).sum()) > 0


@pytest.mark.skipif(DEVICE == "cpu", reason="only a GPU records")
def test_memory_does_not_grow() -> None:
    x = torch.rand((60, 70, 80), device=DEVICE)
    held = []
    for _ in range(6):
        tk.ntd(x, 5, n_iter_max=8)
        held.append(torch.cuda.memory_reserved())
    assert held[-1] <= held[2] * 1.01
