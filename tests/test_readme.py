"""What the README and the pages of the documentation say must work when it is pasted."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tucket as tk
from benchmarks import paper
from benchmarks.pages import PAGES as FILLED
from benchmarks.pages import filled
from experiments.paper.findings import findings
from experiments.paper.rows import Rows

pytest.importorskip("sphinx", reason="the documentation and its examples need the extra `docs`")

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def run(*arguments: str, cwd: Path) -> None:
    """Run Python, which must not fail."""
    environment = {**os.environ, "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


CODE = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(blocks(page, "python"))
]


@pytest.mark.parametrize("code", CODE)
def test_python(code: str, tmp_path: Path) -> None:
    run("-W", "error", "-c", code, cwd=tmp_path)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "pycon")], ids=lambda page: page.stem)
def test_sessions_print_what_the_page_shows(page: Path) -> None:
    session = doctest.DocTestParser().get_doctest("\n".join(blocks(page, "pycon")), {}, page.name, str(page), 0)
    assert session.examples
    assert doctest.DocTestRunner().run(session).failed == 0


def test_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"make ([a-z]+) ", README)) <= targets


def test_links_lead_to_files() -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / link).exists(), link


def test_documentation_is_built_without_a_warning(tmp_path: Path) -> None:
    """In a copy, since examples and pages of the API are written beside the sources."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("examples", "generated"))
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    run("-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", "build", cwd=tmp_path)
    pages = {path.stem for path in (tmp_path / "build").rglob("*.html")}
    assert {"idea", "method", "cookbook", "plot_digits", "plot_geometry", "tucket.ltr", "tucket.LTR"} <= pages


def test_every_public_name_is_documented() -> None:
    listed = set(re.findall(r"^   (\w+)$", (ROOT / "docs" / "api.rst").read_text(), re.M))
    assert set(tk.__all__) <= listed


def test_figures_are_those_of_the_kept_results() -> None:
    assert all(filled(page) == page.read_text() for page in FILLED)


def test_findings_are_those_of_the_kept_rows() -> None:
    rows = Rows(paper.ROWS)
    for page in paper.PAGES:
        assert paper.fill(page.read_text(), rows) == page.read_text()
    assert (paper.ROWS.parent / "findings.md").read_text() == findings(rows)


def test_the_rooms_of_contributing_are_those_of_the_contract() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    text = (ROOT / "CONTRIBUTING.md").read_text()
    block = text.split("<!-- from pyproject.toml -->")[1].split("<!-- end -->")[0]
    assert block.split() == contract["layers"]
    assert {path.name for path in (ROOT / "src" / "tucket").iterdir() if path.is_dir()} - {"__pycache__"} == set(
        contract["layers"]
    )
