"""A real dask cluster: two worker processes on this machine, and what travels between them and the client."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tucket as tk

distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

TWO_PROCESSES = {
    "n_workers": 2,
    "threads_per_worker": 1,
    "processes": True,
    "host": "127.0.0.1",
    "dashboard_address": "127.0.0.1:0",
    "memory_limit": 0,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(**TWO_PROCESSES) as running:
        yield running


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    with distributed.Client(cluster) as connected:
        yield connected


def block(seed: int, shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(seed).poisson(3, shape).astype(np.uint8)


def made_there(n_chunks: int, shape: tuple[int, ...] = (16, 32, 32)) -> Any:
    """An array whose chunks are made by the workers: the client never holds one."""
    from dask.delayed import delayed

    chunks = [da.from_delayed(delayed(block)(seed, shape), shape, np.uint8) for seed in range(n_chunks)]
    return da.concatenate(chunks)


def here(n_chunks: int, shape: tuple[int, ...] = (16, 32, 32)) -> Any:
    return np.concatenate([block(seed, shape) for seed in range(n_chunks)])


def test_same_as_in_memory(client: Any) -> None:
    assert len(client.scheduler_info()["workers"]) == 2
    array, x = made_there(12), here(12)
    partition = tk.Partition.uniform(x.shape, (10, 7, 5))
    ours, dense = tk.collect(array, partition, moments=True), tk.collect(x, partition, moments=True)
    np.testing.assert_allclose(ours.core, dense.core, rtol=1e-12)
    for marginal, expected in zip(ours.marginals, dense.marginals):
        np.testing.assert_allclose(marginal, expected, rtol=1e-12)
    np.testing.assert_allclose(ours.moments, dense.moments, rtol=1e-12)  # type: ignore[arg-type]
    model = tk.ltr(array, (4, 4, 4), blocks="segments")
    assert model.kl(array) == pytest.approx(model.kl(x), rel=1e-11)
    assert model.relative_error(array) == pytest.approx(model.relative_error(x), rel=1e-11)
    assert model.kl(x) <= tk.ltr(x, 4, blocks="uniform").kl(x)
    promised = tk.collect(array, 4, compute=False)
    assert client.compute(promised.project()).result() == tk.ltr(x, 4, blocks="uniform")


def test_xarray_on_the_cluster(client: Any) -> None:
    import xarray as xr

    assert client.status == "running"
    array = xr.DataArray(made_there(4), dims=("time", "row", "column"), coords={"time": np.arange(64) * 10})
    model = tk.ltr(array, {"time": 3, "row": 4, "column": 4}, blocks="uniform")
    labels = model.blocks("time")[1].labels
    assert labels is not None
    assert labels.tolist() == (np.arange(21, 42) * 10).tolist()
    assert model.to_xarray()["factor_time"].coords["time"].size == 64


class Counter:
    """Stands between a client and its scheduler, and counts the bytes that come back."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self.target, self.received = (host, int(port)), 0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:  # closed
                return
            far = socket.create_connection(self.target)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink, source is far), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                self.received += len(data) if counted else 0
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                end.close()


def bytes_received(cluster: Any, array: Any, partition: tk.Partition) -> int:
    counter = Counter(cluster.scheduler_address)
    try:
        with distributed.Client(counter.address, direct_to_workers=False) as client:
            client.run(os.getpid)  # everybody has been talked to
            before = counter.received
            statistics = tk.collect(array, partition)
            received = counter.received - before
            assert statistics.shape == partition.shape
            return received
    finally:
        counter.server.close()


def test_only_statistics_come_back(cluster: Any) -> None:
    """Chunks of 16 kB, of 1 MB and of 4 MB: the same bytes come back; of more chunks, only messages about them."""
    few: list[int] = []
    for side in (32, 256, 512):
        array = made_there(8, (16, side, side))
        partition = tk.Partition.uniform(array.shape, (8, 8, 8))
        statistics = 8 * (8**3 + sum(array.shape))
        received = bytes_received(cluster, array, partition)
        few.append(received - statistics)
        assert received < statistics + 20_000
        assert side < 256 or received < array.nbytes / 100
    assert max(few) - min(few) < 10_000
    # the statistics of four times as many chunks are no larger but for a longer marginal
    many = made_there(32, (16, 256, 256))
    partition = tk.Partition.uniform(many.shape, (8, 8, 8))
    assert bytes_received(cluster, many, partition) < 8 * (8**3 + sum(many.shape)) + 40_000


def slow(seed: int, shape: tuple[int, ...], folder: str) -> Any:
    time.sleep(0.1)
    (Path(folder) / f"{os.getpid()}-{seed}-{time.monotonic_ns()}").touch()
    return block(seed, shape)


def test_a_worker_may_die(tmp_path: Path) -> None:
    """One of two workers is killed when some chunks are done: the others do its work again."""
    from dask.delayed import delayed

    shape = (4, 32, 32)
    with (
        distributed.LocalCluster(**TWO_PROCESSES) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = client.run(os.getpid)
        assert len(set(pids.values())) == 2
        pieces = [da.from_delayed(delayed(slow)(seed, shape, str(tmp_path)), shape, np.uint8) for seed in range(40)]
        array = da.concatenate(pieces)
        partition = tk.Partition.uniform(array.shape, (9, 5, 7))
        promised = client.compute(tk.collect(array, partition, compute=False))
        victim = next(iter(pids.values()))
        while len(list(tmp_path.glob(f"{victim}-*"))) < 5:
            time.sleep(0.02)
        os.kill(victim, signal.SIGKILL)
        statistics = promised.result(timeout=120)
        assert not promised.cancelled()
        workers = {int(path.name.split("-")[0]) for path in tmp_path.iterdir()}
        assert victim in workers
        assert len(list(tmp_path.iterdir())) > 40  # some were made twice
    x = np.concatenate([block(seed, shape) for seed in range(40)])
    dense = tk.collect(x, partition)
    np.testing.assert_allclose(statistics.core, dense.core, rtol=1e-12)
    for marginal, expected in zip(statistics.marginals, dense.marginals):
        np.testing.assert_allclose(marginal, expected, rtol=1e-12)


@pytest.fixture
def _nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave even the small arrays of these tests on the cluster."""
    monkeypatch.setattr("tucket.decomposition.data.SMALL_BYTES", 0)


@pytest.mark.usefixtures("client", "_nothing_is_small")
@pytest.mark.parametrize("loss", ["kl", "ls"])
def test_ntd_is_the_same_fit(loss: Any) -> None:
    x = here(4)
    start = tk.ltr(x, (4, 5, 6), blocks="uniform")
    fits = [tk.ntd(each, init=start, loss=loss, multilevel=False, n_iter_max=4) for each in (made_there(4), x)]
    assert fits[0].n_passes >= fits[0].n_iterations > fits[1].n_passes == 0
    assert fits[0].loss == pytest.approx(fits[1].loss, rel=1e-9)
    np.testing.assert_allclose(fits[0].core, fits[1].core, rtol=1e-5, atol=1e-5 * fits[1].core.max())
    names = tk.ntd(made_there(2), 3, names=("day", "station", "hour"), n_iter_max=2).axes
    assert names is not None
    assert names.names == ("day", "station", "hour")


@pytest.mark.usefixtures("_nothing_is_small")
def test_a_worker_may_die_while_ntd_iterates(tmp_path: Path) -> None:
    """One of two workers is killed in the middle of an iteration: it costs time, and nothing else."""
    from dask.delayed import delayed

    shape = (4, 32, 32)
    x = np.concatenate([block(seed, shape) for seed in range(20)])
    start = tk.ltr(x, (4, 5, 6), blocks="uniform")
    second = threading.Event()
    with distributed.LocalCluster(**TWO_PROCESSES) as cluster, distributed.Client(cluster) as client:
        victim = next(iter(client.run(os.getpid).values()))
        pieces = [da.from_delayed(delayed(slow)(seed, shape, str(tmp_path)), shape, np.uint8) for seed in range(20)]

        def kill() -> None:
            second.wait(60)
            begun = len(list(tmp_path.glob(f"{victim}-*")))
            while len(list(tmp_path.glob(f"{victim}-*"))) < begun + 3:
                time.sleep(0.02)
            os.kill(victim, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        fit = tk.ntd(
            da.concatenate(pieces), init=start, multilevel=False, n_iter_max=3,
            callback=lambda step: second.set() if step.iteration == 2 else None,
        )  # fmt: skip
        killer.join()
        assert victim not in client.run(os.getpid).values()
    expected = tk.ntd(x, init=start, multilevel=False, n_iter_max=3)
    assert fit.loss == pytest.approx(expected.loss, rel=1e-9)
    assert fit.n_iterations == expected.n_iterations


def bad(x: Any, block_info: Any = None) -> Any:
    x = x.astype(np.float64)
    if block_info[0]["chunk-location"] == (2, 0, 0):
        x[3, 4, 5] = -1.5
    return x


def test_bad_values_on_a_worker_are_refused_with_their_place(client: Any) -> None:
    assert client.status == "running"
    array = made_there(4).map_blocks(bad, dtype=np.float64)
    with pytest.raises(ValueError, match=r"x\[35, 4, 5\] is -1.5; every entry must be finite"):
        tk.ltr(array, 3)
