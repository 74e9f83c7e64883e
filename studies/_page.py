"""The results page, made of the studies' reports."""

from __future__ import annotations

from pathlib import Path

from . import load, names
from ._report import Report, markdown_table, write_text

__all__ = ["build", "read_reports", "write"]

INTRODUCTION = """# Results

Every figure here is made by a command of this package, kept as JSON in `studies/`, and compared
with limits that were set beforehand. *Right* means inside the limits. Each study carries a negative
control, something known to be wrong that the same comparison must catch; it is listed as *wrong, as
it must be*. The paper is Song et al. (2021); its figures are quoted where it prints them.

*Coverage* is the share of Monte Carlo trials inside the 95 % interval: around the mean of all
trials (which tests the closed form alone) or around the truth (which also tests the low-rank
model). The number after ± is its standard deviation over elements; the *least spread* is what
sampling with so many trials gives to a perfect σ. As in the paper the σ of one observation is
tested on all trials; on real scenes also each trial's *own σ*, which is what a user has. Real
scenes have no truth of their own: as in the paper, the denoised scene serves as one. The decision
records 0012 and 0013 tell how trials are drawn and judged.

Studies whose name begins with `spatial` are of `prior="spatial"`, the default of `denoise`; their
noise is told and of unit size, and their figures are means over draws of it. More of that
estimator, on real scenes and with noise unknown, is on the pages of [the spatial
estimator](spatial.md) and of [honesty](honesty.md).

All other studies are of the low-rank windows of the paper's family, `prior=None`: *defaults* there
are the defaults of that family. Their values and σ are those of the first release, which tests hold
the present code to (within 1e-6), so figures stay as they were kept.
"""


def read_reports(folder: Path) -> list[Report]:
    """Return the reports in a folder, in the order of the studies."""
    paths = [folder / f"{name}.json" for name in names()]
    return [Report.from_json(path.read_text(encoding="utf-8")) for path in paths if path.exists()]


def build(reports: list[Report], pictures: str) -> str:
    """Return the page as Markdown.

    Parameters
    ----------
    reports
        Reports to show.
    pictures
        Folder of the pictures, as seen from the page.
    """
    head = ["study", "our figure", "the paper's", "limit", "verdict", "command"]
    rows = [report.markdown_row().strip("| ").split(" | ") for report in reports]
    parts = [INTRODUCTION, "## At a glance\n", markdown_table(head, rows) + "\n"]
    for report in reports:
        parts.append(_section(report, pictures))
    return "\n".join(parts).rstrip("\n") + "\n"


def write(page: Path, reports: list[Report], pictures: str) -> None:
    """Write the page; see `build`."""
    write_text(page, build(reports, pictures))


def _section(report: Report, pictures: str) -> str:
    study = load(report.study)
    controls = [check for check in report.checks if check.kind == "control"]
    caught = sum(check.passed for check in controls)
    facts = "; ".join(_fact(key, value) for key, value in report.settings.items())
    how = "quick run" if report.quick else "full run"
    return f"""## {report.title}

{report.question}

{study.table(report)}

![{report.title}]({pictures}/{report.study}.png)

Verdict: **{report.verdict}**; {caught} of {len(controls)} controls caught. Setting: {facts}.
`{report.command}`, {how} of {_duration(report.seconds)}.
"""


def _fact(key: str, value: object) -> str:
    between = " × " if key == "shape" else ", "
    text = between.join(str(v) for v in value) if isinstance(value, list) else str(value)
    return f"{key.replace('_', ' ')} {text}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
