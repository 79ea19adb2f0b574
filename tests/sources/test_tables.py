"""Tables of every kind become the tensor that their rows name, with its labels."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tucket as tk

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

MAKERS: list[Callable[[dict[str, Any]], Any]] = [pd.DataFrame, pl.DataFrame, pa.table]

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob", "cho", "dee"]),
        st.integers(-3, 3),
        st.datetimes(datetime.datetime(2024, 2, 27), datetime.datetime(2024, 3, 2)),
        st.floats(0, 10).map(lambda v: round(v, 3)),
    ),
    min_size=1,
    max_size=20,
)


def columns(rows: list[Any]) -> dict[str, Any]:
    return dict(zip(("user", "item", "time", "value"), map(list, zip(*rows))))


def dense(source: tk.Source) -> Any:
    """The tensor of a source, from its statistics under the finest blocks."""
    return tk.collect(source, None).core


@pytest.mark.parametrize("make", MAKERS)
@settings(max_examples=40)
@given(rows=ROWS)
def test_each_row_adds_to_the_entry_it_names(make: Callable[[Any], Any], rows: list[Any]) -> None:
    frame = make(columns(rows))
    source = tk.from_table(frame, ["user", "item", "time"], "value", bins={"time": "6h"})
    assert source.axes is not None
    users, items, times = source.axes.labels
    assert users is not None
    assert items is not None
    assert times is not None
    assert users.tolist() == sorted({row[0] for row in rows})
    assert items.tolist() == sorted({row[1] for row in rows})
    assert set(np.diff(times).tolist()) <= {datetime.timedelta(hours=6)}
    expected = np.zeros(source.shape)
    for user, item, time, value in rows:
        begin = time.replace(hour=time.hour // 6 * 6, minute=0, second=0, microsecond=0)
        where = (users.tolist().index(user), items.tolist().index(item), times.tolist().index(begin))
        expected[where] += value
    np.testing.assert_allclose(dense(source), expected, rtol=1e-12)
    counts = tk.from_table(frame, ["user"])
    assert dense(counts).tolist() == [sum(row[0] == user for row in rows) for user in users]


@settings(max_examples=20)
@given(rows=ROWS, size=st.integers(1, 7))
def test_parquet_is_the_table(rows: list[Any], size: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("parquet")
    table = pa.table(columns(rows))
    half = len(rows) // 2
    for name, part in (("a", table[:half]), ("b", table[half:])):
        pq.write_table(part, folder / f"{name}.parquet", row_group_size=size)
    ways: dict[str, Any] = {"modes": ["user", "time", "item"], "value": "value", "bins": {"time": "1d"}}
    whole = tk.from_table(table, **ways)
    streamed = tk.from_parquet(folder / "*.parquet", **ways)
    assert streamed.axes == whole.axes
    assert streamed.n_rows == len(rows)
    steps: list[tk.Progress] = []
    partition = tk.Partition.uniform(whole.shape, 1)
    for moments in (False, True):
        found = tk.collect(streamed, partition, moments=moments, progress=steps.append)
        expected = tk.collect(whole, partition, moments=moments)
        np.testing.assert_allclose(found.core, expected.core)
        if moments:
            np.testing.assert_allclose(found.moments, expected.moments)  # type: ignore[arg-type]
    assert steps[0].n_chunks is not None
    np.testing.assert_allclose(dense(tk.open(folder / "*.parquet", **ways)), dense(whole), rtol=1e-12)
    model = tk.ltr(streamed, {"user": 1})
    assert model.kl(streamed) == pytest.approx(model.kl(whole))


def test_categories_keep_their_order_and_their_unused_ones() -> None:
    days = ["Mon", "Tue", "Wed"]
    for frame in (
        pd.DataFrame({"day": pd.Categorical(["Wed", "Mon"], days, ordered=True)}),
        pd.DataFrame({"day": pd.Categorical(["Wed", "Mon"], days)}),
        pl.DataFrame({"day": ["Wed", "Mon"]}, schema={"day": pl.Enum(days)}),
        pa.table({"day": pa.DictionaryArray.from_arrays([2, 0], days)}),
    ):
        source = tk.from_table(frame, ["day"])
        assert source.axes is not None
        assert source.axes.labels[0] is not None
        assert source.axes.labels[0].tolist() == days
        assert dense(source).tolist() == [1, 0, 1]


def test_dictionaries_may_differ_from_part_to_part(tmp_path: Path) -> None:
    for name, values in (("a", ["x", "y"]), ("b", ["z", "x"])):
        pq.write_table(pa.table({"k": pa.array(values).dictionary_encode()}), tmp_path / f"{name}.parquet")
    source = tk.from_parquet([tmp_path / "a.parquet", tmp_path / "b.parquet"], ["k"])
    assert source.axes is not None
    assert source.axes.labels[0] is not None
    assert source.axes.labels[0].tolist() == ["x", "y", "z"]
    assert dense(source).tolist() == [2, 1, 1]


@pytest.mark.parametrize(
    ("length", "count", "first"),
    [
        ("15min", 4 * 24 * 63 + 1, "2024-01-01T00:00"),
        ("1h", 24 * 63 + 1, "2024-01-01T00"),
        ("d", 64, "2024-01-01"),
        ("1w", 10, "2024-01-01"),
        ("2w", 5, "2024-01-01"),
        ("1mo", 3, "2024-01"),
        ("y", 1, "2024"),
    ],
)
def test_lengths_of_time(length: str, count: int, first: str) -> None:
    """From a Monday on, across a leap day; empty stretches count too."""
    frame = pd.DataFrame({"t": pd.to_datetime(["2024-01-01 00:00", "2024-03-04 00:10"])})
    source = tk.from_table(frame, ["t"], bins={"t": length})
    assert source.axes is not None
    labels = source.axes.labels[0]
    assert labels is not None
    assert source.shape in ((count,), (count + 1,)) if length == "2w" else source.shape == (count,)
    if length != "2w":
        assert labels[0] == np.datetime64(first)
    assert dense(source).sum() == 2


def test_days_begin_at_midnight_where_they_are() -> None:
    times = pd.to_datetime(["2024-05-01 23:30", "2024-05-02 00:30"]).tz_localize("Asia/Tokyo")
    source = tk.from_table(pd.DataFrame({"t": times}), ["t"], bins={"t": "1d"})
    assert source.axes is not None
    assert source.axes.labels[0] is not None
    assert [str(day) for day in source.axes.labels[0]] == ["2024-05-01", "2024-05-02"]


def test_numbers_in_bins() -> None:
    frame = {"age": [0, 17, 18, 64, 65, 90], "price": [0.0, 1.0, 2.0, 3.0, 9.9, 10.0]}
    source = tk.from_table(pd.DataFrame(frame), ["age", "price"], bins={"age": [0, 18, 65, 120], "price": 5})
    assert source.shape == (3, 5)
    assert dense(source).sum(axis=1).tolist() == [2, 2, 2]
    assert dense(source).sum(axis=0).tolist() == [2, 2, 0, 0, 2]
    assert tk.from_table(pd.DataFrame({"a": [3, 3]}), ["a"], bins={"a": 2}).shape == (2,)


def test_the_model_knows_the_labels(tmp_path: Path) -> None:
    frame = pd.DataFrame({"user": list("abcabc"), "hour": [0, 0, 1, 1, 2, 2]})
    model = tk.ltr(tk.from_table(frame, ["user", "hour"]), {"user": 2}, blocks={"user": "clusters"})
    assert model.rank == (2, 3)
    seen = [block.labels.tolist() for block in model.blocks("user") if block.labels is not None]
    assert sorted(label for labels in seen for label in labels) == ["a", "b", "c"]
    assert model.blocks("user")[0].indices is not None
    model.save(tmp_path / "model.npz")
    assert tk.load(tmp_path / "model.npz") == model
    assert model.astype(np.float32).axes == model.axes
    dataset = model.to_xarray()
    assert dataset["factor_user"].dims == ("user", "block_user")
    assert dataset["user"].to_numpy().tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(dataset["core"], model.core)
    curve = tk.information_curve(tk.from_table(frame, ["user", "hour"])).to_pandas()
    assert set(curve["path"]) == {"joint", "mode user", "mode hour"}


@pytest.mark.parametrize(
    ("frame", "how", "message"),
    [
        ({"a": [1]}, {"modes": ["b"]}, "column 'b' is missing in the table; it has 'a'"),
        ({"a": [1]}, {"modes": ["a"], "value": "v"}, "column 'v' is missing in the table; it has 'a'"),
        ({"a": [1]}, {"modes": []}, "modes: got none"),
        ({"a": [1]}, {"modes": ["a", "a"]}, "modes: 'a' names two modes"),
        ({"a": []}, {"modes": ["a"]}, "the table has no rows"),
        ({"a": ["x", None]}, {"modes": ["a"]}, "row 1 of column 'a' of the table is missing"),
        (
            {"a": [1, 2], "v": [1.0, None]},
            {"modes": ["a"], "value": "v"},
            "row 1 of column 'v' of the table is missing",
        ),
        ({"a": [1], "v": ["x"]}, {"modes": ["a"], "value": "v"}, "column 'v' of the table is of"),
        ({"a": [1]}, {"modes": ["a"], "bins": {"b": 3}}, "bins: 'b' is not a mode; the modes are 'a'"),
        ({"a": [1]}, {"modes": ["a"], "bins": {"a": "1h"}}, "bins: column 'a' is of int64; only times"),
        ({"a": ["x"]}, {"modes": ["a"], "bins": {"a": 3}}, "only numbers can be cut by numbers"),
        ({"a": [1]}, {"modes": ["a"], "bins": {"a": "1 fortnight"}}, "bins: column 'a' cannot be cut by '1 fortnight'"),
        ({"a": [1]}, {"modes": ["a"], "bins": {"a": 0}}, "bins: column 'a' cannot be cut into 0 bins"),
        ({"a": [1]}, {"modes": ["a"], "bins": {"a": [3, 1]}}, "bins: column 'a' has edges [3, 1]"),
        ({"a": [1, 7]}, {"modes": ["a"], "bins": {"a": [0, 5]}}, "bins: row 1 of column 'a' is 7.0, outside the edges"),
    ],
)
def test_bad_tables(frame: dict[str, Any], how: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        tk.from_table(pa.table(frame), **how)


def test_bad_values_are_refused_with_their_place() -> None:
    frame = pd.DataFrame({"a": ["x", "y", "y"], "b": [0, 1, 2], "v": [1.0, 1.0, -2.0]})
    with pytest.raises(ValueError, match=r"x\[1, 2\] is -2.0; every entry"):
        tk.ltr(tk.from_table(frame, ["a", "b"], "v"), 1)
    with pytest.raises(TypeError, match="got a list; give a table"):
        tk.from_table([1, 2], ["a"])
    with pytest.raises(TypeError, match=r"x is a table; .* tucket.from_table\(x, modes="):
        tk.ltr(frame, 1)


def test_too_many_stretches_of_time() -> None:
    frame = pd.DataFrame({"t": pd.to_datetime(["1900-01-01", "2024-01-01"])})
    with pytest.raises(ValueError, match=r"would be cut into 3,913,056,001 stretches .* at most 100,000,000"):
        tk.from_table(frame, ["t"], bins={"t": "1s"})


def test_bad_parquet(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [1, 2], "b": [1, 2]}), path)
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "short.parquet")
    with pytest.raises(ValueError, match=r"column 'b' is missing in .*short.parquet"):
        tk.from_parquet([path, tmp_path / "short.parquet"], ["a", "b"])
    with pytest.raises(FileNotFoundError, match="there is no file"):
        tk.from_parquet(tmp_path / "none*.parquet", ["a"])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"rows.parquet cannot be read as Parquet"):
        tk.from_parquet(path, ["a"])


def test_columns_that_arrow_does_not_know_are_named() -> None:
    frame = pd.DataFrame({"t": pd.period_range("2024", periods=3, freq="D"), "l": [[1]] * 3, "v": [1.0, 2.0, 3.0]})
    for column in ("t", "l"):
        with pytest.raises(TypeError, match=f"column '{column}' of the table cannot be a mode"):
            tk.from_table(frame, [column])
    with pytest.raises(TypeError, match="got a Series; give a table"):
        tk.from_table(frame["v"], ["v"])


def test_types_may_widen_from_file_to_file(tmp_path: Path) -> None:
    for name, kind, value in (("a", pa.int8(), 7), ("b", pa.int64(), 4000)):
        pq.write_table(pa.table({"i": pa.array([value], kind)}), tmp_path / f"{name}[1].parquet")
    source = tk.from_parquet([tmp_path / "a[1].parquet", tmp_path / "b[1].parquet"], ["i"])
    assert dense(source).tolist() == [1, 1]
    assert source.axes is not None
    assert source.axes.labels[0] is not None
    assert source.axes.labels[0].tolist() == [7, 4000]


def test_numbers_that_are_none() -> None:
    with pytest.raises(ValueError, match="bins: row 2 of column 'i' is inf; drop such rows"):
        tk.from_table(pd.DataFrame({"i": [0.0, 1, np.inf]}), ["i"], bins={"i": 3})
    count: Any = np.int64(4)
    assert tk.from_table(pd.DataFrame({"i": [0.0, 1]}), ["i"], bins={"i": count}).shape == (4,)


def write_rows(path: Path, rows: dict[str, Any]) -> None:
    if path.suffix == ".csv":
        pd.DataFrame(rows).to_csv(path, index=False)
    else:
        pq.write_table(pa.table(rows), path)


def times(*days: str) -> list[datetime.datetime]:
    return [datetime.datetime.fromisoformat(day) for day in days]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("before", "after", "bins", "message"),
    [
        (times("2024-05-01", "2024-05-03"), times("2024-05-04"), "1d", "2024-05-04.* (2024-05-01 to 2024-05-03)"),
        (times("2024-05-01", "2024-05-03"), times("2024-04-30"), "1d", "2024-04-30.* (2024-05-01 to 2024-05-03)"),
        (times("2024-05-01", "2024-05-03"), times("1700-01-01"), "1s", "1700-01-01.* (2024-05-01T00:00:00 to 2024"),
        (["ann", "bob"], ["cho"], None, "cho, .* (2 values)"),
        ([3, 5], [7], None, "7, .* (2 values)"),
        ([3, 5], [4_000_000_000], None, "4000000000, .* (2 values)"),
        ([1.5, 2.5], [2.75], 4, "2.75, .* (1.5 to 2.5)"),
        ([1.5, 2.5], [-1e300], 4, "-1e+300, .* (1.5 to 2.5)"),
        ([1.5, 2.5], [9.5], [0, 2, 4], "9.5, .* (0.0 to 4.0)"),
    ],
)
def test_values_that_come_after_opening_are_refused(
    suffix: str, before: list[Any], after: list[Any], bins: Any, message: str, tmp_path: Path
) -> None:
    """Files are read again for each pass: an index outside the shape would be written out of bounds."""
    path = tmp_path / f"rows.{suffix}"
    write_rows(path, {"key": before, "other": ["x"] * 2})
    source = tk.open(path, modes=["other", "key"], bins={} if bins is None else {"key": bins})
    model = tk.ltr(source, 1)
    write_rows(path, {"key": [*before, before[0]], "other": ["x"] * 3})
    assert tk.collect(source, 1).total == 3  # a value that was there
    write_rows(path, {"key": [*before, *after], "other": ["x"] * 3})
    start, end = map(re.escape, message.split(".*"))
    pattern = f"row 2 of column 'key' of .*rows.{suffix} is {start}.*outside what was there when it was opened{end}"
    calls: list[Callable[[], Any]] = [
        lambda: tk.collect(source, None),
        lambda: tk.collect(source, 1, moments=True),
        lambda: tk.ltr(source, 1),
        lambda: model.kl(source),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=pattern):
            call()
    assert tk.open(path, modes=["key"]).shape[0] == len({*before, *after})


def test_categories_and_types_that_come_after_opening_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"k": pa.array(["x", "y"]).dictionary_encode()}), path)
    source = tk.from_parquet(path, ["k"])
    pq.write_table(pa.table({"k": pa.array(["z", "y", "x"]).dictionary_encode()}), path)
    with pytest.raises(ValueError, match=r"row 0 of column 'k' of .*rows.parquet is z, outside .* \(2 values\)"):
        tk.collect(source, 1)
    pq.write_table(pa.table({"k": pa.DictionaryArray.from_arrays([0, 2], ["x", "z", "y"])}), path)
    assert dense(source).tolist() == [1, 1]  # z is a category without a row
    pq.write_table(pa.table({"k": [1, 2]}), path)
    with pytest.raises(ValueError, match=r"column 'k' of .*rows.parquet has changed since it was opened"):
        tk.collect(source, 1)
    path = tmp_path / "rows.csv"
    path.write_text("k,v\n1,2\n3,4\n")
    source = tk.open(path, modes=["k"], value="v")  # type: ignore[assignment]
    path.write_text("k,v\n1,2\n3,4\n5\n")
    with pytest.raises(ValueError, match=r"rows.csv cannot be read: CSV parse error: .*Expected 2 columns"):
        tk.collect(source, 1)
