"""``sigmacube study``: the tables and figures of the paper, and ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sigmacube.studies import Report
    from sigmacube.studies._setting import Setting


@click.command("study", short_help="Reproduce the tables and figures of the paper, and ours.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--list", "listing", is_flag=True, help="List the studies.")
@click.option("--all", "everything", is_flag=True, help="Run all studies.")
@click.option("--quick", is_flag=True, help="Small scenes and few trials: a minute or two each.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for JSON, PNG and Markdown.  [default: studies, or studies/quick]",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="SIGMACUBE_DATA",
    help="Folder with the scenes.  [default: ../shared/data, where it exists]",
)
@click.option(
    "--scene",
    "scenes",
    multiple=True,
    metavar="NAME=FILE[@ROWS,COLS]",
    help="A further scene: pavia-university=paviaU.mat, washington=dc.tif@0:256,0:256. "
    "These two names get the paper's figures beside them.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Trials at a time.")
@click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Only write the results page from the reports in the folder.",
)
def command(
    names: tuple[str, ...],
    listing: bool,
    everything: bool,
    quick: bool,
    out: Path | None,
    data: Path | None,
    scenes: tuple[str, ...],
    workers: int | None,
    page: Path | None,
) -> None:
    """Run studies by NAME; each writes JSON, a picture and a Markdown row with its verdict.

    A run that is interrupted goes on where it stopped. The exit code is 1 when a figure lies
    outside its limits or a negative control was not caught.
    """
    from sigmacube.studies import NAMES

    if listing:
        _list()
        return
    folder = out or Path("studies", "quick" if quick else "")
    if page is not None:
        _write_page(folder, page)
        return
    chosen = NAMES if everything else names
    if not chosen:
        raise click.UsageError("Name a study, or use --all; --list shows them.")
    unknown = [name for name in chosen if name not in NAMES]
    if unknown:
        raise click.UsageError(f"No study {unknown[0]!r}. There are {', '.join(NAMES)}.")
    setting = _setting(folder, quick, data, scenes, workers)
    reports = [_run(name, setting, folder) for name in dict.fromkeys(chosen)]
    setting.clear()
    if not all(report.passed for report in reports):
        click.get_current_context().exit(1)


def _list() -> None:
    from sigmacube.console import table
    from sigmacube.studies import NAMES, load

    table((name, load(name).question) for name in NAMES)


def _setting(
    folder: Path, quick: bool, data: Path | None, scenes: tuple[str, ...], workers: int | None
) -> Setting:
    from sigmacube.console import progress, quiet
    from sigmacube.studies._setting import Setting

    beside = Path("..", "shared", "data")
    if data is None and beside.is_dir():
        data = beside
    elif data is not None and not data.is_dir():
        raise click.UsageError(f"--data {data}: no such folder.")
    given = {}
    for text in scenes:
        name, found, path = text.partition("=")
        if not found or not name or not path:
            raise click.UsageError(f"--scene {text!r} must be NAME=FILE.")
        if not Path(path.partition("@")[0]).exists():
            raise click.UsageError(f"--scene {text!r}: no such file.")
        given[name] = path
    scratch = folder / ".scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return Setting(
        scratch=scratch,
        quick=quick,
        data=data,
        given=given,
        workers=workers,
        progress=lambda label: progress(label, unit="trials"),
        say=lambda text: None if quiet() else click.echo(f"  {text}", err=True),
    )


def _run(name: str, setting: Setting, folder: Path) -> Report:
    from sigmacube.console import quiet
    from sigmacube.studies import load

    study = load(name)
    if not quiet():
        click.echo(f"{study.name}: {study.question}")
    report = study.report(setting)
    paths = report.write(folder, study.draw)
    if not quiet():
        for check in report.checks:
            click.echo(f"  {check.name:<58s} {check.value:9.4f}  {check.words}")
        click.echo(f"  {report.verdict}; {report.seconds:.0f} s; {paths[0]}, {paths[1].name}")
    return report


def _write_page(folder: Path, page: Path) -> None:
    import os

    from sigmacube.studies._report import write_text
    from sigmacube.studies.page import build, read_reports

    reports = read_reports(folder)
    if not reports:
        raise click.UsageError(f"No reports in {folder}. Run 'sigmacube study --all' first.")
    pictures = os.path.relpath(folder.resolve(), page.resolve().parent)
    write_text(page, build(reports, Path(pictures).as_posix()))
    click.echo(f"{page}: {len(reports)} studies")
