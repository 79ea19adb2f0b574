"""The cases as asv benchmarks: `asv run` follows them from commit to commit."""

from __future__ import annotations

from benchmarks.cases import cases
from benchmarks.measure import compare

CASES = {case.name: case for case in cases()}


class Cases:
    """The time of each case, and its ratio to the baseline in the same run."""

    params = tuple(CASES)
    param_names = ("case",)
    timeout = 600

    def setup(self, name: str) -> None:
        """Make the data outside the measured time, and warm up."""
        self.pair = CASES[name].build(False)
        self.pair.work()

    def time_work(self, name: str) -> None:  # noqa: ARG002
        """Time the work."""
        self.pair.work()

    def track_ratio(self, name: str) -> float:  # noqa: ARG002
        """Track the ratio."""
        return compare(self.pair).ratio
