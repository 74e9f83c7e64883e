"""Draw the worked example of the products page: field-mean NDVI with honest and naive error bars.

Run from the root of the repository: ``python docs/figures/field_ndvi.py``. It also prints the
figures that the page quotes.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import sigmacube as sc
from sigmacube import products
from sigmacube.show import plots
from sigmacube.show.plots import BLUE, GREY, INK, VERMILION

NOISE = 0.04
REPEATS = 40
SMALLEST = 100
OUT = Path(__file__).resolve().parents[1] / "images" / "field_ndvi.png"


def main() -> None:
    """Denoise repeated looks at one scene and draw the field means of each."""
    truth = sc.synthetic.scene((72, 96, 120), rng=4)
    labels = fields(truth)
    looks = [products.index(denoised(truth, n), "ndvi", labels=labels) for n in range(REPEATS)]
    first = denoised(truth, 0)
    exact = true_ndvi(truth, labels)
    errors = np.array([look.estimate for look in looks]) - exact
    sigma = np.array([look.std for look in looks])
    naive = np.array([look.independent_std for look in looks])
    share = [float(np.mean(np.abs(errors) <= 1.96 * s)) for s in (sigma, naive)]
    sizes = np.bincount(labels.ravel())[1:]
    print(f"{len(sizes)} fields of {sizes.min()} to {sizes.max()} pixels, {REPEATS} looks")
    print(f"sigma {np.median(sigma):.5f}, spread {np.median(errors.std(axis=0, ddof=1)):.5f}, "
          f"independent {np.median(naive):.5f}")  # fmt: skip
    print(f"95 % intervals that hold the truth: {share[0]:.3f}, independent {share[1]:.3f}")
    with plots.style():
        figure = plt.figure(figsize=(11, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.1))
        draw_map(left, products.index(first, "ndvi").estimate, labels)
        draw_fields(right, errors, sigma[0], naive[0], share)
        figure.savefig(OUT, dpi=150)
    plt.close(figure)


def denoised(truth: sc.Cube, number: int) -> sc.DenoisedCube:
    return sc.denoise(sc.synthetic.add_noise(truth, NOISE, rng=100 + number), NOISE)


def true_ndvi(truth: sc.Cube, labels: np.ndarray) -> np.ndarray:
    nir, red = (truth.values[..., truth.nearest_band(nm)] for nm in (842.0, 665.0))
    means = [[band[labels == n].mean() for n in range(1, labels.max() + 1)] for band in (nir, red)]
    return (np.subtract(*means)) / np.add(*means)


def fields(truth: sc.Cube) -> np.ndarray:
    """Return the fields of the scene, numbered from 1: connected land of one NDVI."""
    from scipy import ndimage

    nir, red = (truth.values[..., truth.nearest_band(nm)] for nm in (842.0, 665.0))
    step = np.where(nir + red > 0.18, np.round((nir - red) / (nir + red) / 0.02).astype(int), -1)
    labels = np.zeros(truth.shape[:2], dtype=int)
    for value in np.unique(step[step >= 0]):
        parts, count = ndimage.label(step == value)
        for part in range(1, count + 1):
            if np.count_nonzero(parts == part) >= SMALLEST:
                labels[parts == part] = labels.max() + 1
    return labels


def draw_map(ax: plt.Axes, ndvi: np.ndarray, labels: np.ndarray) -> None:
    image = ax.imshow(ndvi, cmap="YlGn", vmin=0, vmax=0.95)
    ax.figure.colorbar(image, ax=ax, shrink=0.85, label="NDVI", pad=0.02)
    for number in range(1, labels.max() + 1):
        ax.contour(labels == number, [0.5], colors=INK, linewidths=1)
        rows, cols = np.nonzero(labels == number)
        nearest = np.argmin((rows - rows.mean()) ** 2 + (cols - cols.mean()) ** 2)
        ax.text(cols[nearest], rows[nearest], str(number), ha="center", va="center", color=INK,
                bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none"})  # fmt: skip
    ax.set(title="One look, denoised", xticks=[], yticks=[])


def draw_fields(
    ax: plt.Axes, errors: np.ndarray, sigma: np.ndarray, naive: np.ndarray, share: list[float]
) -> None:
    at = np.arange(1, errors.shape[1] + 1)
    ax.axhline(0, color=INK, lw=0.8)
    jitter = np.random.default_rng(0).uniform(-0.07, 0.07, errors.shape)
    ax.plot(at + jitter, errors * 1000, ".", color=GREY, ms=3, alpha=0.6, zorder=1)
    ax.plot([], [], ".", color=GREY, label=f"{len(errors)} looks at the same fields")
    for shift, std, color, name, held in (
        (0.2, sigma, BLUE, "sigmacube, all correlations", share[0]),
        (0.36, naive, VERMILION, "independent errors", share[1]),
    ):
        label = f"{name}: {held:.0%} of 95 % intervals hold the truth"
        ax.errorbar(at + shift, errors[0] * 1000, 1.96 * std * 1000, fmt="o", ms=3.5, color=color,
                    capsize=2.5, lw=1.6, label=label)  # fmt: skip
    low, high = ax.get_ylim()
    ax.set(
        title="Error of the field's NDVI",
        xlabel="field",
        ylabel="field NDVI minus truth (× 1000)",
        xticks=at,
        ylim=(low, high + 0.38 * (high - low)),
    )
    ax.legend(loc="upper left", frameon=False)


if __name__ == "__main__":
    main()
