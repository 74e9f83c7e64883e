"""Sphinx configuration: the site is built without a network, and its tutorials run."""

import sys
import zlib
from pathlib import Path

from sigmacube import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

project = "sigmacube"
author = "the sigmacube developers"
copyright = "2026, the sigmacube developers"  # noqa: A001
release = version = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "numpydoc",
    "mathml",
    "run",
]
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "api/_templates"]
templates_path = ["templates"]
html_theme = "furo"
html_title = f"sigmacube {__version__}"
html_static_path = ["static"]
html_css_files = ["sigmacube.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}
html_show_sourcelink = False
numpydoc_show_class_members = False
autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
suppress_warnings = ["myst.xref_missing"]

# Names of other packages that our pages refer to. Links to them need an inventory; these small ones
# are written here, so that the build asks no network.
_OTHERS = {
    "python": ("https://docs.python.org/3/", {"pathlib.Path": "library/pathlib.html#$"}),
    "numpy": (
        "https://numpy.org/doc/stable/",
        {
            "numpy.ndarray": "reference/generated/numpy.ndarray.html#$",
            "numpy.random.Generator": "reference/random/generator.html#$",
            "numpy.dtype": "reference/generated/numpy.dtype.html#$",
        },
    ),
    "xarray": (
        "https://docs.xarray.dev/en/stable/",
        {
            "xarray.DataArray": "generated/xarray.DataArray.html#$",
            "xarray.Dataset": "generated/xarray.Dataset.html#$",
        },
    ),
    "pandas": (
        "https://pandas.pydata.org/docs/",
        {"pandas.DataFrame": "reference/api/pandas.DataFrame.html#$"},
    ),
    "matplotlib": (
        "https://matplotlib.org/stable/",
        {
            "matplotlib.axes.Axes": "api/_as_gen/matplotlib.axes.Axes.html#$",
            "matplotlib.figure.Figure": "api/_as_gen/matplotlib.figure.Figure.html#$",
        },
    ),
}


def _inventory(name: str, objects: dict[str, str]) -> str:
    """Write an inventory of a few classes, in the format of Sphinx."""
    head = f"# Sphinx inventory version 2\n# Project: {name}\n# Version:\n"
    head += "# The remainder of this file is compressed using zlib.\n"
    lines = "".join(f"{key} py:class 1 {where} -\n" for key, where in objects.items())
    path = HERE / "_build" / "inventories" / f"{name}.inv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head.encode() + zlib.compress(lines.encode()))
    return str(path)


intersphinx_mapping = {
    name: (address, _inventory(name, objects)) for name, (address, objects) in _OTHERS.items()
}
