"""Sigma of every product against Monte Carlo, beside what independent errors would have said.

Each trial adds fresh noise to a known scene, denoises it and makes the products. The spread of a
product over all trials is what its sigma should have said. With 400 trials a single spread is known
to 3.5 %; the table gives medians over pixels, blocks and regions. The scene is the built-in one, so
that the figures can be had anywhere; ``--scene`` takes another.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import sigmacube as sc
from sigmacube import products
from sigmacube.cube import Cube
from sigmacube.products._indices import Index, _second_order
from sigmacube.products._types import Product

Make = Callable[[sc.DenoisedCube], Product]
SENTINEL_2 = ([490.0, 560.0, 665.0, 705.0, 842.0, 1610.0, 2190.0], [65, 35, 30, 15, 115, 90, 180])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--sigmas", type=int, default=10, help="trials that also compute sigma")
    parser.add_argument("--noise", type=float, default=0.03)
    parser.add_argument("--scene", type=Path, help="a .mat cube; its bands span 400 to 2500 nm")
    parser.add_argument("--crop", default="40:100,30:90", help="rows,cols of --scene")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--skip-times", action="store_true")
    options = parser.parse_args()
    truth = load(options.scene, options.crop)
    report: dict[str, object] = {"trials": options.trials, "noise": options.noise,
                                 "scene": options.scene.name if options.scene else "built-in",
                                 "shape": list(truth.shape)}  # fmt: skip
    makers = {**pixel_products(), **region_products(fields(truth))}
    tallies, flagged = monte_carlo(truth, options.noise, makers, options.trials, options.sigmas)
    report["products"] = print_products(tallies)
    report["flagged"] = print_flagged(flagged)
    report["fusion"] = fusion(truth, options.noise)
    report["sample"] = sampling(truth, options.noise)
    if not options.skip_times:
        report["times"] = times()
    if options.json:
        options.json.parent.mkdir(exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def load(path: Path | None, crop: str) -> Cube:
    if path is None:
        return sc.synthetic.scene((60, 64, 120), rng=3)
    from scipy.io import loadmat

    cube = next(v for v in loadmat(path).values() if getattr(v, "ndim", 0) == 3)
    rows, cols = (slice(*map(int, part.split(":"))) for part in crop.split(","))
    return Cube(np.array(cube[rows, cols]), np.linspace(400, 2500, cube.shape[2]))


def fields(truth: Cube, size: tuple[int, int] = (9, 11), most: int = 8) -> np.ndarray:
    """Return up to ``most`` rectangles of land: dark pixels have no index to speak of."""
    near = [truth.values[..., truth.nearest_band(nm)] for nm in (665.0, 842.0)]
    bright = near[0] + near[1] > 0.15
    labels = np.zeros(truth.shape[:2], dtype=int)
    for top in range(0, truth.shape[0] - size[0], size[0] + 2):
        for left in range(0, truth.shape[1] - size[1], size[1] + 2):
            where = (slice(top, top + size[0]), slice(left, left + size[1]))
            if bright[where].all() and labels.max() < most:
                labels[where] = labels.max() + 1
    return labels


def pixel_products() -> dict[str, Make]:
    made: dict[str, Make] = {
        name: (lambda r, n=name: products.index(r, n)) for name in products.INDICES
    }
    made["ratio b842/b665"] = lambda r: products.index(r, "b842/b665")
    made["ndvi of 3x3 blocks"] = lambda r: products.index(r, "ndvi", aggregate=3)
    made["3x3 means, all bands"] = lambda r: products.aggregate(r, 3)
    made["Sentinel-2 bands"] = lambda r: products.resample(r, *SENTINEL_2)
    made["100 nm band averages"] = lambda r: products.resample(
        r, np.arange(500.0, 2400, 200), 100.0, shape="box"
    )
    return made


def region_products(labels: np.ndarray) -> dict[str, Make]:
    return {
        "field means, all bands": lambda r: products.region_means(r, labels),
        "ndvi of field means": lambda r: products.index(r, "ndvi", labels=labels),
        "field means of ndvi": lambda r: products.index(r, "ndvi", labels=labels, of="pixels"),
    }


@dataclass
class Tally:
    """Sums over trials of one product."""

    truth: np.ndarray
    count: int = 0
    total: np.ndarray | float = 0.0
    square: np.ndarray | float = 0.0
    variances: list[np.ndarray] = field(default_factory=list)
    naive: list[np.ndarray] = field(default_factory=list)
    inside: list[np.ndarray] = field(default_factory=list)

    def add(self, made: Product, keep_sigma: bool) -> None:
        """Add the product of one trial."""
        error = made.estimate - self.truth
        self.count += 1
        self.total = self.total + error
        self.square = self.square + error**2
        if keep_sigma:
            self.variances.append(made.std**2)
            self.naive.append(made.independent_std**2)
            self.inside.append(
                np.where(np.isfinite(made.std), np.abs(error) <= 1.96 * made.std, np.nan)
            )

    def spread(self) -> np.ndarray:
        """Return the standard deviation over trials."""
        mean = self.total / self.count
        return np.sqrt((self.square / self.count - mean**2) * self.count / (self.count - 1))

    def row(self) -> dict[str, float]:
        """Return the figures of the table."""
        good = np.isfinite(np.stack(self.variances)).all(axis=0)
        spread = self.spread()[good]
        sigma = np.sqrt(np.mean(self.variances, axis=0))[good]
        naive = np.sqrt(np.mean(self.naive, axis=0))[good]
        ratio = sigma / spread
        return {
            "sigma": float(np.median(sigma)),
            "monte_carlo": float(np.median(spread)),
            "independent": float(np.median(naive)),
            "ratio": float(np.median(ratio)),
            "ratio_spread": float(np.std(ratio)),
            "independent_ratio": float(np.median(naive / spread)),
            "truth_covered": float(np.nanmean(np.stack(self.inside)[:, good])),
            "without_sigma": float(1 - good.mean()),
        }


def monte_carlo(
    truth: Cube, noise: float, makers: dict[str, Make], trials: int, sigmas: int
) -> tuple[dict[str, Tally], dict[str, np.ndarray]]:
    """Return the tallies of all products, and NDVI with its sigma unflagged."""
    tallies: dict[str, Tally] = {}
    raw: dict[str, list[np.ndarray]] = {"value": [], "std": [], "flags": []}
    for trial in range(trials):
        noisy = sc.synthetic.add_noise(truth, noise, rng=1000 + trial)
        result = sc.denoise(noisy, noise, prior=None)
        if trial == 0:
            perfect = noise_free(result, truth)
            tallies = {name: Tally(make(perfect).estimate) for name, make in makers.items()}
        for name, make in makers.items():
            tallies[name].add(make(result), keep_sigma=trial < sigmas)
        raw["value"].append(products.index(result, "ndvi").estimate)
        if trial < sigmas:
            std, flags = unflagged_ndvi(result)
            raw["std"].append(std)
            raw["flags"].append(flags)
        if trial % 50 == 49:
            print(f"... {trial + 1} trials", flush=True)
    return tallies, {key: np.stack(values) for key, values in raw.items()}


def noise_free(result: sc.DenoisedCube, truth: Cube) -> sc.DenoisedCube:
    """Return a result that holds the truth, to make the products' true values from."""
    from dataclasses import replace

    return replace(result, estimate=np.asarray(truth.values, dtype=float))


def unflagged_ndvi(result: sc.DenoisedCube) -> tuple[np.ndarray, np.ndarray]:
    """Return the delta method's sigma everywhere, also where the product refuses to give it."""
    task = Index.create(result, "ndvi", max_curvature=np.inf)
    values, covariance, _ = task._bands_with_errors(None)
    jet = task.expression.evaluate(list(np.moveaxis(values, -1, 0)))
    flags = products.index(result, "ndvi").flags
    assert flags is not None
    return np.sqrt(_second_order(jet, covariance)[0]), flags


def print_products(tallies: dict[str, Tally]) -> dict[str, dict[str, float]]:
    rows = {name: tally.row() for name, tally in tallies.items()}
    print(f"{'product':26s} {'sigma':>9s} {'MC':>9s} {'indep.':>9s} {'ratio':>6s} {'(sd)':>6s} "
          f"{'indep.':>6s} {'truth':>6s} {'no sigma':>8s}   goal .95-1.05")  # fmt: skip
    for name, r in rows.items():
        met = "met" if 0.95 <= r["ratio"] <= 1.05 else "MISSED"
        print(f"{name:26s} {r['sigma']:9.3g} {r['monte_carlo']:9.3g} {r['independent']:9.3g} "
              f"{r['ratio']:6.3f} {r['ratio_spread']:6.3f} {r['independent_ratio']:6.3f} "
              f"{r['truth_covered']:6.3f} {r['without_sigma']:8.1%}   {met}")  # fmt: skip
    return rows


def print_flagged(raw: dict[str, np.ndarray]) -> dict[str, float]:
    """Print what the delta method would have said of NDVI where the product gives no sigma."""
    spread = raw["value"].std(axis=0, ddof=1)
    ratio = raw["std"] / spread
    figures: dict[str, float] = {}
    for name, where in (("given", raw["flags"] == 0), ("refused", raw["flags"] == 3)):
        if where.any():
            low, middle, high = np.quantile(ratio[where], (0.05, 0.5, 0.95))
            figures |= {f"{name}_5": low, f"{name}_50": middle, f"{name}_95": high,
                        f"{name}_share": float(where.mean())}  # fmt: skip
            print(f"ndvi, sigma {name:8s} ({where.mean():6.1%}): delta method / Monte Carlo "
                  f"{middle:.2f}, 5 to 95 %: {low:.2f} to {high:.2f}")  # fmt: skip
    return {key: float(value) for key, value in figures.items()}


def fusion(truth: Cube, noise: float, pairs: int = 8) -> dict[str, float]:
    """Fuse pairs of looks with different noise; print RMSE and coverage of the truth."""
    levels = (noise, 1.5 * noise)
    errors: dict[str, list[float]] = {"first": [], "second": [], "fused": []}
    inside = []
    for pair in range(pairs):
        looks = [
            sc.denoise(
                sc.synthetic.add_noise(truth, level, rng=9000 + 2 * pair + n), level, prior=None
            )
            for n, level in enumerate(levels)
        ]
        both = products.fuse(*looks)
        for name, cube in zip(errors, (*looks, both), strict=True):
            errors[name].append(float(np.sqrt(np.mean((cube.estimate - truth.values) ** 2))))
        inside.append(float(np.mean(np.abs(both.estimate - truth.values) <= 1.96 * both.std)))
    figures = {name: float(np.mean(values)) for name, values in errors.items()}
    figures["truth_covered"] = float(np.mean(inside))
    print(f"fusion: RMSE {figures['first']:.5f} and {figures['second']:.5f}, fused "
          f"{figures['fused']:.5f} (goal: lower than either); truth covered "
          f"{figures['truth_covered']:.4f} (goal .935 to .965)")  # fmt: skip
    return figures


def sampling(truth: Cube, noise: float, draws: int = 500, sums: int = 12) -> dict[str, float]:
    """Compare the covariance of draws with the closed form, in units of the sampling error."""
    result = sc.denoise(sc.synthetic.add_noise(truth, noise, rng=5), noise, prior=None)
    rng = np.random.default_rng(6)
    rows, cols = slice(20, 32), slice(25, 39)
    weights = np.zeros((sums, *truth.shape))
    weights[:, rows, cols] = rng.normal(size=(sums, 12, 14, truth.shape[2]))
    weights[: sums // 2, rows, cols] += 1.0
    drawn = result.sample(draws, rng=7, rows=rows, cols=cols)
    flat = drawn.reshape(draws, -1) @ weights[:, rows, cols].reshape(sums, -1).T
    exact = result.functional_cov(list(weights))
    seen = flat.T @ flat / draws
    scale = np.sqrt((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / draws)
    z = ((seen - exact) / scale)[np.triu_indices(sums)]
    figures = {"draws": draws, "covariances": len(z), "rms_z": float(np.sqrt(np.mean(z**2))),
               "largest_z": float(np.abs(z).max())}  # fmt: skip
    print(f"sample: {len(z)} covariances of {draws} draws, deviation in sampling errors: rms "
          f"{figures['rms_z']:.2f}, largest {figures['largest_z']:.2f} (goal: near 1)")  # fmt: skip
    return figures


def times(repeats: int = 3) -> dict[str, float]:
    """Time products beside denoising, in turn, on a scene of the usual size."""
    truth = sc.synthetic.scene((145, 145, 224), rng=0)
    noisy = sc.synthetic.add_noise(truth, 0.05, rng=1)
    result = sc.denoise(noisy, 0.05, prior=None)
    tasks: dict[str, Callable[[], object]] = {
        "denoise": lambda: sc.denoise(noisy, 0.05, prior=None),
        "ndvi": lambda: products.index(result, "ndvi"),
        "aggregate": lambda: products.aggregate(result, 3),
        "Sentinel-2": lambda: products.resample(result, *SENTINEL_2),
    }
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - start)
    median = {name: float(np.median(values)) for name, values in seconds.items()}
    shares = {name: median[name] / median["denoise"] for name in tasks}
    print(f"145 x 145 x 224: denoise {median['denoise']:.2f} s; ndvi {shares['ndvi']:.2f} of it "
          f"(goal <= .25), 3x3 means of all bands {shares['aggregate']:.2f} (goal <= 1), "
          f"Sentinel-2 bands {shares['Sentinel-2']:.2f}")  # fmt: skip
    return median


if __name__ == "__main__":
    main()
