"""Sphinx configuration."""

from sigmacube import __version__

project = "sigmacube"
author = "the sigmacube developers"
copyright = "2026, the sigmacube developers"  # noqa: A001
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"sigmacube {__version__}"
numpydoc_show_class_members = False
autodoc_typehints = "none"
suppress_warnings = ["myst.xref_missing"]
