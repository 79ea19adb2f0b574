"""Settings of the documentation, which `make docs` builds."""

from __future__ import annotations

import warnings

import tucket

project = "tucket"
author = "the tucket developers"
release = version = tucket.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
html_theme = "pydata_sphinx_theme"
html_title = "tucket"
html_static_path: list[str] = []
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False}
exclude_patterns = ["build", "gallery/README.rst"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]  # the settings of the gallery contain functions, which cannot be cached
default_role = "code"
numpydoc_show_class_members = False
autodoc_typehints = "none"
autosummary_generate = True
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"plot_",
    "download_all_examples": False,
    "abort_on_example_error": True,
    "show_memory": False,
}
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")  # examples call plt.show
