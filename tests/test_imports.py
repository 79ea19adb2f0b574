"""Names come when they are asked for, and nothing else does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tucket as tk


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    assert run("import sys, tucket; print('numpy' in sys.modules, tucket.__version__)") == f"False {tk.__version__}\n"
    heavy = ["numba", "scipy", "sklearn", "pandas", "matplotlib", "dask", "xarray", "rich", "typer"]
    code = f"import sys, tucket as tk; tk.ltr([[1, 2], [3, 4]], 1); print([m for m in {heavy} if m in sys.modules])"
    assert run(code) == "[]\n"


def test_every_name_is_there() -> None:
    pytest.importorskip("sklearn")
    code = "from tucket import *; import tucket; print(sorted(set(tucket.__all__) - set(globals())), tucket.ntd)"
    assert run(code).startswith("[] <function ntd")
    assert set(dir(tk)) == set(tk.__all__)


@pytest.mark.parametrize("name", ["nonsense", "__main__", "a.b", "_private"])
def test_what_is_not_there(name: str) -> None:
    with pytest.raises(AttributeError, match="No tucket attribute"):
        getattr(tk, name)


def test_types_know_which_names_there_are(tmp_path: object) -> None:
    pytest.importorskip("mypy")
    script = f"{tmp_path}/user.py"
    with open(script, "w") as file:  # noqa: PTH123
        file.write("import tucket as tk\nmodel = tk.ltr([[1.0]], 1)\nprint(model.rank)\ntk.ltrr([1.0])\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", script], capture_output=True, text=True, check=False
    )
    assert 'has no attribute "ltrr"' in done.stdout
    assert "Found 1 error" in done.stdout


@pytest.mark.parametrize(
    ("package", "call", "message"),
    [
        ("sklearn", "tk.LTR", "LTR needs scikit-learn; install it with: pip install 'tucket[sklearn]'"),
        ("matplotlib", "tk.ltr([[1, 2]], 1).plot()", "a plot needs matplotlib; .* 'tucket[plot]'"),
        ("xarray", "tk.ltr([[1, 2]], 1).to_xarray()", "to_xarray needs xarray; .* 'tucket[xarray]'"),
        ("pandas", "tk.information_curve([[1, 2]]).to_pandas()", "to_pandas needs pandas; .* 'tucket[pandas]'"),
        ("pyarrow", "tk.from_table([1], ['a'])", "a table needs pyarrow; .* 'tucket[tables]'"),
        ("h5py", "tk.open('x.h5')", "this file needs h5py; .* 'tucket[files]'"),
    ],
)
def test_a_package_that_is_missing_is_named(package: str, call: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.h5").touch()
    code = f"import sys, os; os.chdir({str(tmp_path)!r}); sys.modules[{package!r}] = None; import tucket as tk\n"
    code += f"try:\n    {call}\nexcept ImportError as error:\n    print(error)"
    pattern = ".*".join(re.escape(part) for part in message.split(".*"))
    assert re.fullmatch(pattern, run(code).strip())
