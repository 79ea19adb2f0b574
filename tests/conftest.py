"""Settings shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# the same tensors each time, so that what passes here passes elsewhere; fewer, or others and more, by the other two
settings.register_profile(
    "tucket", deadline=None, max_examples=100, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("tucket"), max_examples=20)
settings.register_profile("thorough", settings.get_profile("tucket"), max_examples=2000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tucket"))

# read when Triton is imported: without a GPU its kernels are interpreted
if not Path("/proc/driver/nvidia/version").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# read when JAX is imported: two devices, among which arrays can be shared out, and threads enough for both,
# which else wait for each other for ever on few processors
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
os.environ.setdefault("NPROC", "8")

DATA = Path(os.environ.get("TUCKET_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture
def data() -> Path:
    """Return the folder of real tensors, which are not part of the project."""
    if not DATA.is_dir():
        pytest.skip(f"no real tensors in {DATA}; name their folder in TUCKET_DATA")
    return DATA
