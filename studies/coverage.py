"""Coverage by noise level and scene: the paper's first table, for three closed forms."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from sigmacube.show import plots

from ._paper import COVERAGE, NOISE_LEVELS
from ._report import Check, Found, Report, markdown_table, span
from ._setting import Setting, defaults, paper_setting, pick

TITLE = "Coverage by noise level and scene"
QUESTION = "Do 95 % intervals hold 95 % of repeated estimates, at every noise level?"

LEVEL = 0.95
# What the defaults must reach: of the truth where there is one, of the Monte Carlo mean elsewhere.
TRUTH_MARGIN, MEAN_MARGIN = 0.006, 0.01


def run(setting: Setting) -> Found:
    """Measure every cell of the table."""
    noises = (0.05, 0.125) if setting.quick else NOISE_LEVELS
    cells: list[dict[str, Any]] = []
    for name in setting.scene_names():
        scene = setting.scene(name)
        for noise in noises:
            rank7 = paper_setting(setting, scene, noise)
            ours = defaults(setting, scene, noise)
            cells.append({
                "scene": name, "title": scene.title, "real": scene.real,
                "shape": list(scene.truth.shape), "noise": noise,
                "paper": COVERAGE.get(name, {}).get(noise),
                "paper_form": pick(rank7["paper"]), "exact": pick(rank7["own"]),
                "first_order": pick(rank7["first order"]), "ours": pick(ours["own"]),
                "ours_first": pick(ours["first"]),
                "seconds": rank7["own"]["seconds"] + ours["own"]["seconds"],
                "halved": pick(ours["halved"]), "independent": pick(ours["independent"]),
            })  # fmt: skip
    return Found(
        settings={"trials": setting.trials, "noise": list(noises), "level": LEVEL},
        **_summary(cells),
        checks=_checks(cells) + _time_check(cells, setting),
        data={"cells": cells},
    )


def _checks(cells: list[dict[str, Any]]) -> tuple[Check, ...]:
    checks = []
    for cell in cells:
        name = f"{cell['scene']} σ₀ {cell['noise']:g}"
        paper = cell["paper"][0] if cell["paper"] else None
        low, high = LEVEL - MEAN_MARGIN, LEVEL + MEAN_MARGIN
        if not cell["real"]:
            near = (LEVEL - TRUTH_MARGIN, LEVEL + TRUTH_MARGIN)
            checks.append(Check(f"{name}: defaults, truth", cell["ours"]["truth"], *near))
        checks.append(Check(f"{name}: defaults, mean", cell["ours"]["mean"], low, high))
        if cell["real"]:
            one = cell["ours_first"]["mean"]
            checks.append(Check(f"{name}: defaults, one σ for all", one, low, high, kind="paper"))
        checks.append(
            Check(f"{name}: exact form, rank 7", cell["exact"]["mean"], low, high, kind="paper")
        )
        checks.append(
            Check(f"{name}: paper's form, rank 7", cell["paper_form"]["mean"], low, high,
                  kind="paper", paper=paper)
        )  # fmt: skip
        for control in ("halved", "independent"):
            what = "σ halved" if control == "halved" else "windows independent"
            value = cell[control]["mean"]
            checks.append(Check(f"{name}: {what}", value, low, high, kind="control"))
    return tuple(checks)


def _time_check(cells: list[dict[str, Any]], setting: Setting) -> tuple[Check, ...]:
    """Hold the simulated part of a full run to half an hour."""
    minutes = sum(cell["seconds"] for cell in cells if cell["scene"] == "indian") / 60
    if setting.quick or not minutes:
        return ()
    return (Check("minutes for the simulated scene", round(minutes, 1), 0, 30),)


def _summary(cells: list[dict[str, Any]]) -> dict[str, str]:
    truth = [c["ours"]["truth"] for c in cells if not c["real"]]
    real = [c["ours"]["mean"] for c in cells if c["real"]]
    printed = [c["paper"][0] for c in cells if c["paper"]]
    ours = f"truth {span(truth)} (simulated)"
    if real:
        ours += f"; mean {span(real)} (real)"
    return {
        "ours": ours,
        "paper": span(printed) if printed else "–",
        "limit": f"{LEVEL} ± {TRUTH_MARGIN} (truth); ± {MEAN_MARGIN} (mean)",
    }


def table(report: Report) -> str:
    """Return the paper's table with ours beside it."""
    rows = []
    verdicts = {check.name: check.words for check in report.checks}
    for cell in report.data["cells"]:
        name = f"{cell['scene']} σ₀ {cell['noise']:g}"
        key = f"{name}: defaults, {'mean' if cell['real'] else 'truth'}"
        printed = "–" if not cell["paper"] else f"{cell['paper'][0]:.3f} ± {cell['paper'][1]:.3f}"
        rows.append([
            cell["title"], f"{cell['noise']:g}", printed, _cell(cell["paper_form"]),
            _cell(cell["exact"]), _cell(cell["ours_first"]),
            _cell(cell["ours"]) if cell["real"] else "–", f"{cell['ours']['truth']:.4f}",
            f"{cell['ours']['limit']:.3f}", verdicts[key],
            f"{cell['halved']['mean']:.3f} / {cell['independent']['mean']:.3f}",
        ])  # fmt: skip
    head = ["scene", "σ₀", "paper prints", "paper's form, rank 7", "exact form, rank 7",
            "**defaults**", "**defaults, own σ**", "**defaults, truth**", "least spread", "verdict",
            "controls: σ halved / windows independent"]  # fmt: skip
    return markdown_table(head, rows)


def _cell(figures: dict[str, float]) -> str:
    return f"{figures['mean']:.3f} ± {figures['spread']:.3f}"


def draw(report: Report, figure: Figure) -> None:
    """Draw coverage against the noise level, one panel per scene."""
    cells = report.data["cells"]
    scenes = list(dict.fromkeys(cell["scene"] for cell in cells))
    figure.set_size_inches(3.9 * len(scenes) + 0.8, 4.2)
    axes = figure.subplots(1, len(scenes), sharey=True, squeeze=False)
    for ax, scene in zip(axes[0], scenes, strict=True):
        _panel(ax, [cell for cell in cells if cell["scene"] == scene])
    axes[0, 0].set_ylabel("coverage of the 95 % interval")
    axes[0, 0].legend(*_all_labels(axes[0]), loc="lower left", fontsize=9)
    figure.suptitle("95 % intervals: share of Monte Carlo trials inside", weight="bold")


def _panel(ax: Any, cells: list[dict[str, Any]]) -> None:
    x = [cell["noise"] for cell in cells]
    ax.axhspan(LEVEL - MEAN_MARGIN, LEVEL + MEAN_MARGIN, color=plots.GREY, alpha=0.25, lw=0)
    ax.axhline(LEVEL, color=plots.GREY, lw=1)
    printed = [(cell["noise"], cell["paper"][0]) for cell in cells if cell["paper"]]
    if printed:
        ax.plot(*zip(*printed, strict=True), "x", color=plots.INK, ms=7, label="paper prints")
    for key, color, marker, label in (
        ("paper_form", plots.VERMILION, "s", "paper's form, rank 7"),
        ("exact", plots.SKY, "^", "exact form, rank 7"),
        ("ours", plots.BLUE, "o", "defaults"),
    ):
        ax.plot(x, [c[key]["mean"] for c in cells], marker + "-", color=color, ms=6, label=label)
    if not cells[0]["real"]:
        ax.plot(x, [c["ours"]["truth"] for c in cells], "o", mfc="none", color=plots.BLUE, ms=10,
                label="defaults, truth")  # fmt: skip
    ax.set_title(cells[0]["title"])
    ax.set_xlabel("noise σ₀")
    ax.set_xticks(x, [f"{v:g}" for v in x])
    ax.set_ylim(0.86, 1.0)


def _all_labels(axes: Any) -> tuple[list[Any], list[str]]:
    """Return every legend entry once, whichever panel has it."""
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
