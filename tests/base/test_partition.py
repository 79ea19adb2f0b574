from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import blocks as any_blocks
from strategies import partitions, shapes
from tucket import Partition
from tucket.base.blocks import Blocks


@given(st.integers(1, 200), st.data())
def test_uniform_starts_at_floor(size: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, size))
    blocks = Partition.uniform((size,), rank)[0]
    assert blocks.starts.tolist() == [b * size // rank for b in range(rank)]
    assert blocks.sizes.max() - blocks.sizes.min() <= 1


@given(st.integers(1, 50), st.data())
def test_random_is_step_1_of_the_paper(size: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, size))
    starts = Partition.random((size,), rank, rng=data.draw(st.integers(0, 99)))[0].starts
    assert starts[0] == 0
    assert len(set(starts.tolist())) == rank
    assert (np.diff(starts) > 0).all()
    assert starts[-1] < size


def test_random_draws_every_set_of_starts_alike() -> None:
    rng = np.random.default_rng(0)
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(6000):
        starts = tuple(Partition.random((5,), 3, rng)[0].starts.tolist())
        seen[starts] = seen.get(starts, 0) + 1
    assert len(seen) == 6  # 2 of the 4 later indices
    assert max(abs(count - 1000) for count in seen.values()) < 150  # five standard deviations


def test_random_is_reproducible_and_advances_a_generator() -> None:
    shape = (100, 200)
    assert Partition.random(shape, 9, rng=7) == Partition.random(shape, 9, rng=np.random.default_rng(7))
    rng = np.random.default_rng(7)
    assert Partition.random(shape, 9, rng) != Partition.random(shape, 9, rng)


@given(shapes().flatmap(lambda shape: st.tuples(st.just(shape), partitions(shape))))
def test_views_of_a_partition_agree(case: tuple[tuple[int, ...], Partition]) -> None:
    shape, partition = case
    assert partition.shape == shape
    assert len(partition) == len(shape)
    for blocks, size, rank, sizes in zip(partition.modes, shape, partition.rank, partition.block_sizes):
        assert blocks.labels.shape == (size,)
        assert sizes.tolist() == [len(blocks.indices(block)) for block in range(rank)]
        assert sizes.sum() == size
        if blocks.contiguous:
            assert blocks.labels[blocks.starts].tolist() == list(range(rank))
    assert Partition.from_labels([blocks.labels for blocks in partition.modes]) == partition
    assert pickle.loads(pickle.dumps(partition)) == partition
    assert partition != "a partition"


def test_labels_in_order_are_contiguous_blocks() -> None:
    assert Partition.from_labels([[0, 0, 1, 2]]) == Partition.from_starts((4,), [[0, 2, 3]])
    assert Partition.from_labels([[1, 1, 0, 2]]) != Partition.from_starts((4,), [[0, 2, 3]])


@given(shapes(), st.data())
def test_refinement(shape: tuple[int, ...], data: st.DataObject) -> None:
    a, b = data.draw(partitions(shape)), data.draw(partitions(shape))
    whole, one = Partition.uniform(shape, shape), Partition.uniform(shape, 1)
    assert whole.refines(a)
    assert a.refines(a)
    assert a.refines(one)
    by_definition = all(
        len({coarse.labels[i] for i in fine.indices(block)}) == 1
        for fine, coarse in zip(a.modes, b.modes)
        for block in range(fine.rank)
    )
    assert a.refines(b) == by_definition
    if by_definition:
        assert a.compose(a.quotient(b)) == b
    assert not a.refines(Partition.uniform((*shape, 2), 1))


def test_partitions_cannot_be_changed() -> None:
    given_labels = np.array([1, 0, 1])
    partition = Partition.from_labels([given_labels])
    given_labels[:] = 0
    assert partition[0].labels.tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="read-only"):
        partition[0].labels[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        Partition.uniform((4,), 2)[0].starts[0] = 1
    with pytest.raises(AttributeError):
        partition.modes = ()  # type: ignore[misc]


def test_rank_takes_numpy_ints_and_arrays() -> None:
    assert Partition.uniform((4, 4), np.int64(2)).rank == (2, 2)
    assert Partition.uniform((4, 4), np.array([2, 3])).rank == (2, 3)
    assert Partition.uniform((4, 4), [None, 1]).rank == (4, 1)


def test_a_none_among_starts_leaves_the_mode_whole() -> None:
    assert Partition.from_starts((3, 4), [None, [0, 1]]).rank == (3, 2)


def test_repr_is_short_for_long_modes() -> None:
    partition = Partition((Blocks.uniform(10**6, 10**3), Blocks.from_labels([1, 0])))
    assert repr(partition) == "Partition(shape=(1000000, 2), rank=(1000, 2), free=[1])"
    assert len(repr(partition[0])) < 150
    assert repr(partition[1]) == "Blocks(size=2, rank=2, labels=[1, 0])"


@given(st.data())
def test_blocks_of_some_indices(data: st.DataObject) -> None:
    """They are numbered from 0, in the order of their old numbers, which are returned too."""
    size = data.draw(st.integers(1, 12))
    all_blocks = data.draw(any_blocks(size))
    first = data.draw(st.integers(0, size - 1))
    rows = slice(first, data.draw(st.integers(first + 1, size)), data.draw(st.integers(1, 3)))
    part, seen = all_blocks._within(rows)
    chosen = all_blocks.labels[rows]
    assert seen.tolist() == sorted(set(chosen.tolist()))
    assert seen[part.labels].tolist() == chosen.tolist()
    assert part == Blocks.from_labels(part.labels)


def test_equal_partitions_are_one_key() -> None:
    cut, same = (Partition.from_starts((5, 4), [[0, 3], [0, 1, 2]]) for _ in range(2))
    free = Partition.from_labels([[0, 1, 0, 1, 1], [0, 1, 2, 2]])
    assert {cut: "contiguous", same: "the same", free: "free"} == {cut: "the same", free: "free"}
    assert hash(pickle.loads(pickle.dumps(cut))) == hash(cut)
