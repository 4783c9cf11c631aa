# SPDX-License-Identifier: Apache-2.0
"""Sphinx's settings: `make docs` builds the site into build/docs, and takes every warning for an error."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "genmonitor"
author = "The genmonitor developers"
copyright = author
release = version = installed_version("genmonitor")

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb"]
extensions += [
    "mathml",
    "accessible",
    "reference_lists",
    "site_links",
    "gallery",
    "api_pages",
    "value_table",
]  # of docs/_ext
exclude_patterns = ["pictures/*.md"]  # a table that a page includes
suppress_warnings = ["myst.header"]  # the tables of benchmarks/ begin at the level that suits them

# pages: MyST Markdown, formulas as MathML, one notebook that is executed at each build
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
html_math_renderer = "mathml"
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # from a CDN by default

# docstrings: Google style, single backticks for code
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
add_module_names = False
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "genmonitor"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_theme_options = {"source_repository": "https://github.com/genmonitor/genmonitor/", "source_branch": "main"}
html_theme_options["source_directory"] = "docs/"
