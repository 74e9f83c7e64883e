"""``sigmacube study``: the tables and figures of the paper, and ours."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import click


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
    studies = find_studies()
    known = studies.names()
    if listing:
        from sigmacube.console import table

        table((name, studies.load(name).question) for name in known)
        return
    folder = out or Path("studies", "quick" if quick else "")
    if page is not None:
        _write_page(folder, page)
        return
    chosen = known if everything else names
    if not chosen:
        raise click.UsageError("Name a study, or use --all; --list shows them.")
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise click.UsageError(f"No study {unknown[0]!r}. There are {', '.join(known)}.")
    setting = _setting(folder, quick, data, scenes, workers)
    reports = [_run(studies.load(name), setting, folder) for name in dict.fromkeys(chosen)]
    setting.clear()
    if not all(report.passed for report in reports):
        click.get_current_context().exit(1)


def find_studies() -> ModuleType:
    """Return the package of studies: part of an installed sigmacube, beside the source otherwise.

    Examples
    --------
    >>> "coverage" in find_studies().names()
    True
    """
    name = "sigmacube.studies"
    inside = Path(__file__).parents[1] / "studies"
    beside = Path(__file__).parents[3] / "studies"
    if name in sys.modules or inside.is_dir():
        return import_module(name)
    if not (beside / "__init__.py").exists():
        raise click.ClickException(f"No studies in {inside} or {beside}.")
    spec = spec_from_file_location(
        name, beside / "__init__.py", submodule_search_locations=[str(beside)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    return package


def _setting(
    folder: Path, quick: bool, data: Path | None, scenes: tuple[str, ...], workers: int | None
) -> Any:
    from sigmacube.console import progress, quiet

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
    return import_module("sigmacube.studies._setting").Setting(
        scratch=scratch,
        quick=quick,
        data=data,
        given=given,
        workers=workers,
        progress=lambda label: progress(label, unit="trials"),
        say=lambda text: None if quiet() else click.echo(f"  {text}", err=True),
    )


def _run(study: Any, setting: Any, folder: Path) -> Any:
    from sigmacube.console import quiet

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

    page_of = import_module("sigmacube.studies._page")
    reports = page_of.read_reports(folder)
    if not reports:
        raise click.UsageError(f"No reports in {folder}. Run 'sigmacube study --all' first.")
    pictures = os.path.relpath(folder.resolve(), page.resolve().parent)
    page_of.write(page, reports, Path(pictures).as_posix())
    click.echo(f"{page}: {len(reports)} studies")
