"""The page about a model, opened in a real browser."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tucket as tk
from tucket.interfaces.report import make_report, write_report

QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start Chromium without a window."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium; install it, on Debian with: apt-get install chromium")
    with pytest.importorskip("playwright.sync_api").sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=QUIET)
        yield started
        started.close()


class Opened:
    """A page, its requests and its errors."""

    def __init__(self, browser: Any, path: Path, **how: Any) -> None:
        self.context = browser.new_context(**how)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.wrong.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def numbers(self) -> dict[str, Any]:
        text = {name: self.page.inner_text(f"#{name}") for name in ("rank", "parameters", "kl", "kept")}
        return {
            "rank": tuple(map(int, text["rank"].split(" x "))),
            "parameters": int(text["parameters"].replace(",", "")),
            "kl": float(text["kl"]),
            "kept": float(text["kept"].removesuffix(" %")) / 100,
        }

    def move(self, steps: int) -> float:
        """Move the slider; return how many milliseconds the page took."""
        code = """steps => { const slider = document.getElementById("slider"), began = performance.now();
                  slider.value = steps; slider.dispatchEvent(new Event("input")); return performance.now() - began; }"""
        return float(self.page.evaluate(code, steps))

    def pixels(self, name: str) -> NDArray[np.uint8]:
        code = f"""() => {{ const c = document.getElementById("{name}");
                   return [c.height, c.width, [...c.getContext("2d").getImageData(0, 0, c.width, c.height).data]]; }}"""
        height, width, data = self.page.evaluate(code)
        return np.array(data, np.uint8).reshape(height, width, 4)[..., :3]


@pytest.fixture(scope="module")
def pictures() -> NDArray[np.uint8]:
    """Three coloured pictures of 30 x 40, smooth."""
    row, column = np.mgrid[0:30, 0:40] / 20
    waves = [[100 + 90 * np.sin(row * (1 + n) + column * (1 + c)) for c in range(3)] for n in range(3)]
    return np.moveaxis(np.array(waves), 1, 3).astype(np.uint8)


def test_slider_shows_every_coarser_model(browser: Any, tmp_path: Path, pictures: Any) -> None:
    """Rank, parameters, divergence and share equal those that Python computes from the data."""
    model = tk.ltr(pictures, (3, 8, 9, 3), blocks="segments")
    write_report(tmp_path / "page.html", model, pictures, title="Three <pictures> & more")
    opened = Opened(browser, tmp_path / "page.html")
    assert opened.page.inner_text("h1") == "Three <pictures> & more"
    path = tk.information_curve(tk.collect(model.core, None)).joint
    total = pictures.sum()
    information = tk.metrics.total_correlation(pictures)
    for steps in (0, 1, 7, len(path) - 1):
        opened.move(steps)
        coarse = tk.ltr(pictures, blocks=model.partition.compose(path[steps].partition))
        found = opened.numbers()
        assert found["rank"] == coarse.rank
        assert found["parameters"] == coarse.n_parameters
        assert found["kl"] == pytest.approx(coarse.kl(pictures) / total, rel=1e-4)
        assert found["kept"] == pytest.approx(1 - coarse.kl(pictures) / total / information, abs=1e-4)
        shown = opened.pixels("approximation")
        expected = np.clip(255 * coarse[0] / pictures.max(), 0, 255)
        assert np.abs(shown.astype(float) - expected).max() <= 1
    original = opened.pixels("original")
    assert np.abs(original.astype(float) - 255 * (pictures[0] / pictures.max())).max() <= 1
    opened.page.select_option("#slice", "2")
    opened.page.check("#transpose")
    turned = opened.pixels("original").transpose(1, 0, 2)
    assert np.abs(turned.astype(float) - 255 * (pictures[2] / pictures.max())).max() <= 1
    assert opened.wrong == []
    assert opened.asked == [(tmp_path / "page.html").as_uri()]


def test_keyboard_phone_and_dark(browser: Any, tmp_path: Path, pictures: Any) -> None:
    write_report(tmp_path / "page.html", tk.ltr(pictures, (3, 8, 9, 3)), pictures)
    opened = Opened(browser, tmp_path / "page.html", viewport={"width": 360, "height": 700}, color_scheme="dark")
    wide = opened.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 360
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 19, 22)"
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.id") == "slider"
    opened.page.keyboard.press("ArrowRight")
    assert sum(opened.numbers()["rank"]) == 3 + 8 + 9 + 3 - 1
    opened.page.keyboard.press("End")
    assert opened.numbers()["rank"] == (1, 1, 1, 1)
    assert opened.wrong == []


def test_models_of_every_kind(browser: Any, tmp_path: Path) -> None:
    """One mode, five modes, zeros, free blocks, labels that would end a script, no data, a large core."""
    rng = np.random.default_rng(0)
    labels = ["</script><script>alert(1)</script>", "ü", "c", "d"]
    named = tk.from_entries(([0, 1, 2], [0, 1, 2]), [1.0, 2, 3], (4, 5), modes=("user", "item"), labels=(labels, None))
    cases: list[tuple[tk.BlockTucker, Any]] = [
        (tk.ltr([1.0, 2, 3, 4], 2), [1.0, 2, 3, 4]),
        (tk.ltr(rng.random((3, 2, 4, 2, 3)), 2), None),
        (tk.ltr(np.zeros((4, 5)), 2), np.zeros((4, 5))),
        (tk.ltr(named, 2), named),
        (tk.ltr(rng.random((80, 90, 70)), (70, 80, 60), blocks="uniform"), None),
    ]
    for number, (model, data) in enumerate(cases):
        write_report(tmp_path / f"{number}.html", model, data)
        opened = Opened(browser, tmp_path / f"{number}.html")
        steps = int(opened.page.get_attribute("#slider", "max"))
        opened.move(steps)
        assert opened.numbers()["rank"] == (1,) * len(model.shape)
        assert opened.wrong == []
        if data is named:
            assert labels[0] in opened.page.text_content("#modes")


def test_faces(browser: Any, tmp_path: Path, data: Path) -> None:
    x = np.load(data / "attface.npz")["tensor"]
    write_report(tmp_path / "page.html", tk.ltr(x, 40, blocks="segments"), x)
    assert (tmp_path / "page.html").stat().st_size < 5e6
    began = time.perf_counter()
    opened = Opened(browser, tmp_path / "page.html")
    opened.page.wait_for_selector("#rank:not(:empty)")
    print(f"opened in {time.perf_counter() - began:.2f} s, moved in {[opened.move(n) for n in (1, 40, 90, 5)]} ms")
    assert opened.wrong == []
    assert opened.numbers()["rank"] != (40, 40, 40)


def test_bad_calls(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((6, 5, 4))
    with pytest.raises(TypeError, match="model: got a Tucker, which has no blocks"):
        make_report(tk.ntd(x, 2).model)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=re.escape("x has shape (6, 5), but the model is of shape (6, 5, 4)")):
        write_report(tmp_path / "page.html", tk.ltr(x, 2), x[..., 0])
    assert not list(tmp_path.iterdir())
