"""One look for everything that people see: the colours, and the stylesheet of pages."""

from __future__ import annotations

# Okabe and Ito's palette: told apart with any common colour vision, and in grey.
BLUE, VERMILION, GREEN, SKY, GREY = "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#8C8C8C"
INK = "#222222"
NO_DATA = "#D9D9D9"
"""Where a map has no value."""
CURVES = (BLUE, VERMILION, GREEN, "#CC79A7", "#E69F00", SKY, "#000000")
"""Of spectra that are compared; the yellow, which is faint on white, left out."""

CSS = f"""
:root {{ color-scheme: light; --ink: {INK}; --soft: #555; --rule: #ddd; --accent: {BLUE};
  --warn: {VERMILION}; --panel: #f5f7f9; }}
* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }}
body {{ margin: 0 auto; color: var(--ink); background: #fff;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }}
h1 {{ font-size: 26px; line-height: 1.2; margin: 0 0 6px; overflow-wrap: anywhere; }}
h2 {{ font-size: 18px; margin: 34px 0 10px; padding-bottom: 4px;
  border-bottom: 1px solid var(--rule); }}
h3 {{ font-size: 14px; margin: 0 0 4px; color: var(--soft); }}
table {{ border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }}
th, td {{ text-align: left; vertical-align: top; padding: 3px 18px 3px 0;
  border-bottom: 1px solid #e8e8e8; overflow-wrap: anywhere; }}
th {{ font-weight: 600; }}
kbd {{ font: 12px/1 ui-monospace, Consolas, monospace; border: 1px solid #bbb; border-radius: 3px;
  padding: 1px 4px; background: #fff; }}
.caveats {{ border-left: 3px solid var(--warn); background: #fdf4ee; margin: 0 0 18px;
  padding: 8px 14px; max-width: 90ch; }}
.caveats ul {{ margin: 4px 0 0; padding-left: 18px; }}
@media (max-width: 560px) {{ h1 {{ font-size: 21px; }} }}
"""
"""Rules that report and viewer share; each adds the layout of its own page."""
