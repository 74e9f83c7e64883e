"""Every tiling, by any number of workers of any kind, has the bits of the whole cube."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

import sigmacube as sc
from sigmacube import io
from sigmacube.io.atomic import remove
from sigmacube.tiles import denoise_file

SHAPE = (61, 53, 20)
PRIORS = ("spatial", None)
SETTINGS: dict[str, Any] = {"noise": 0.05, "window": 5, "step": 2}
TILINGS = ["61x53", "20x53", "61x17", "40x40", "20x16", "16x20", "13x53", "33x27", "30x20",
           "40x53", "61x40", "17x31", "25x26"]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tilings", type=int, default=len(TILINGS))
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--kinds", nargs="+", default=["threads", "processes", "dask"])
    options = parser.parse_args()
    same = total = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wholes = {prior: make_scene(folder, prior) for prior in PRIORS}
        for kind in options.kinds:
            for workers in options.workers:
                with cluster(kind, workers) as scheduler:
                    for tile in TILINGS[: options.tilings]:
                        who = (
                            {"scheduler": scheduler.scheduler_address}
                            if scheduler is not None
                            else {"mode": kind, "workers": workers}
                        )
                        for prior, whole in wholes.items():
                            same += is_same(folder, whole, tile, {"prior": prior, **who})
                            total += 1
                print(f"{kind:10s} {workers} workers: {same} of {total} identical", flush=True)
    if same != total:
        raise SystemExit(1)


def make_scene(folder: Path, prior: str | None) -> sc.DenoisedCube:
    rng = np.random.default_rng(7)
    cube = sc.synthetic.scene(SHAPE, rng=3).values + rng.normal(scale=0.05, size=SHAPE)
    cube[:5, :7] = np.nan
    np.save(folder / "in.npy", cube)
    return sc.denoise(cube, prior=prior, **SETTINGS)


def cluster(kind: str, workers: int) -> Any:
    if kind != "dask":
        return nullcontext()
    import distributed

    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    )


def is_same(folder: Path, whole: sc.DenoisedCube, tile: str, who: dict[str, Any]) -> bool:
    output = folder / "out.zarr"
    remove(output)
    denoise_file(folder / "in.npy", output, **SETTINGS, tile=tile, dtype="float64", **who)
    found = io.read_result(output)
    return all(
        np.array_equal(getattr(found, key), getattr(whole, key), equal_nan=True)
        for key in ("estimate", "std", "ranks", "residual_ratio")
    )


if __name__ == "__main__":
    main()
