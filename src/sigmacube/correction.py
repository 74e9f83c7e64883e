"""Offsets of columns and rows, found on a scene and taken out of it before anything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from sigmacube.core.parallel import ParallelMap, at_once, in_turn
from sigmacube.core.validity import of_bands, valid_elements
from sigmacube.core.whitening import Noise
from sigmacube.estimators import Region, estimator
from sigmacube.noise.band_screen import smallest_step
from sigmacube.noise.clipping import find_bounds
from sigmacube.noise.gaps import stands_out
from sigmacube.noise.line_offsets import (
    FEWEST,
    LineOffsets,
    find_offsets,
    median_steps,
    profiles,
)
from sigmacube.noise.sample import NoiseSample
from sigmacube.noise.scales import scales, smooth_directions
from sigmacube.settings import Settings
from sigmacube.survey import STREAMED, Presence, Scene, Source, Survey, noise_sample

# Step of a lattice over the noise beyond which clipping is not told from it.
LATTICE = 1.0
# Pixels along a side that are asked what an estimate keeps of offsets, and the share of the offsets
# that are left that is added to ask.
ASKED, LITTLE = 64, 0.2


@dataclass(frozen=True, eq=False)
class Changed:
    """A source with other values; which are valid stays."""

    source: Source
    change: Callable[[np.ndarray, slice, slice], np.ndarray]
    """Takes the values of a block, its rows and its columns."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, cols, bands)."""
        return self.source.shape

    @property
    def wavelengths(self) -> np.ndarray | None:
        """(bands,) nm, or None."""
        return getattr(self.source, "wavelengths", None)

    @property
    def metadata(self) -> Any:
        """What the source knows about itself."""
        return getattr(self.source, "metadata", None)

    def block(self, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        """Return changed values, and their mask."""
        values, mask = self.source.block(rows, cols)
        return self.change(values, rows, cols), mask


def corrected(source: Source, offsets: LineOffsets | None) -> Source:
    """Return a source without the offsets of its lines; itself where there are none."""
    return source if offsets is None else Changed(source, offsets.removed)


def find_line_offsets(
    source: Source,
    presence: Presence,
    *,
    impulses: bool = False,
    run: ParallelMap = in_turn,
    sample: NoiseSample | None = None,
) -> LineOffsets | None:
    """Return the offsets that columns or rows carry; None where the scene shows none.

    ``sample`` holds windows of the source, if these have been taken.
    """
    bands, (n_rows, n_cols, _) = presence.bands, source.shape
    if min(n_rows, n_cols) < FEWEST or len(bands) < FEWEST:
        return None
    height, lines = max(1, STREAMED // (n_cols * len(bands))), None
    for _ in range(3):  # what is signal shows better once most of the offsets are gone
        if sample is None or lines is not None:
            part = noise_sample(corrected(source, lines))
            sample = NoiseSample.of(*part, bands, impulses=impulses)
        std = scales(sample.products(run))
        if std is None:
            return None
        products = sample.products(run).whitened(Noise.create(std, len(bands)))

        def block(rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray]:
            part, known = source.block(rows, cols)
            there = of_bands(valid_elements(part, known), bands)
            part = of_bands(part, bands) / std  # noqa: B023
            return part, there & ~stands_out(part, there) if impulses else there

        shape = (n_rows, n_cols, len(bands))
        *signal, means = at_once(
            run,
            partial(smooth_directions, products, (0,)),
            partial(smooth_directions, products, (1,)),
            partial(profiles, block, shape, height),
        )
        steps = partial(median_steps, block, shape, height=height)
        offsets = find_offsets(means, (signal[0], signal[1]), steps)
        if offsets is None:
            return None
        lines = offsets.in_units(std, bands, source.shape[2])
    return lines


@dataclass(frozen=True, eq=False)
class Clipping:
    """Bounds that values seem to be clipped to, and the step of their lattice."""

    bounds: np.ndarray
    """(2, bands with data) bounds, infinite where there are none."""
    step: np.ndarray
    """(bands with data,) step of the lattice that values lie on."""

    def beside(self, std: np.ndarray) -> np.ndarray | None:
        """Return the bounds beside noise ``std`` (bands with data,); None where there are none.

        On a lattice that is coarse beside the noise the crowd on the last step says nothing.
        """
        far = np.array([[-np.inf], [np.inf]])
        found = np.where(self.step > LATTICE * std, far, self.bounds)
        return found if np.isfinite(found).any() else None


def find_clipping(source: Source, presence: Presence) -> Clipping | None:
    """Return the bounds that values seem to be clipped to; None where there are none."""
    values, mask = noise_sample(source)
    spectra = of_bands(values, presence.bands).reshape(-1, len(presence.bands))
    valid = of_bands(valid_elements(values, mask), presence.bands).reshape(spectra.shape)
    spectra = spectra if valid.all() else np.where(valid, spectra, np.nan)
    step = smallest_step(spectra)
    bounds = find_bounds(spectra, step)
    return Clipping(np.stack([bounds.low, bounds.high]), step) if bounds.any else None


def first_look(
    source: Source,
    presence: Presence,
    lines: tuple[LineOffsets | None] | None,
    settings: Settings,
    run: ParallelMap,
) -> tuple[LineOffsets | None, Clipping | None, NoiseSample | None]:
    """Return offsets of lines, those in ``lines`` if they are known, and what was clipped.

    Last come the windows that were looked at, for an estimate of the noise.
    """
    robust, sample = settings.solver == "robust", None
    if lines is None and not robust:
        sample = NoiseSample.of(*noise_sample(source), presence.bands)
    look = partial(find_line_offsets, source, presence, impulses=robust, run=run, sample=sample)
    known = look if lines is None else lambda: lines[0]
    offsets, clipping = at_once(run, known, partial(find_clipping, source, presence))
    return offsets, clipping, sample


def with_what_is_left(
    region: Region, offsets: LineOffsets | None, rows: slice, cols: slice
) -> Region:
    """Return a region whose σ holds what may be left of offsets."""
    if offsets is None or region.std is None:
        return region
    return replace(region, std=offsets.with_left(region.std, rows, cols))


def answered(source: Source, survey: Survey, run: ParallelMap) -> Survey:
    """Return the survey with what the estimate is seen to keep of what is left of offsets."""
    offsets, settings = survey.offsets, survey.settings
    if offsets is None or settings.prior != "spatial" or not settings.uncertainty:
        return survey
    if offsets.inside is None:
        return survey
    draw, given = offsets.inside.draw, survey
    survey = replace(survey, learnt=dict(survey.learnt))
    rows, cols = (
        slice((n - min(n, ASKED)) // 2, (n + min(n, ASKED)) // 2) for n in survey.shape[:2]
    )
    solve = partial(
        estimator(survey.settings).solve,
        rows=(rows.start, rows.stop), cols=(cols.start, cols.stop), run=run,
    )  # fmt: skip
    plain = solve(Scene(source, survey))
    assert plain.std is not None
    kept = [
        (solve(Scene(Changed(source, change), survey)).estimate - plain.estimate) / LITTLE
        for change in (
            lambda values, y, x: values + LITTLE * offsets.on(draw, y, x),
            lambda values, y, x: values + _little_noise(survey, (rows, cols), y, x),
        )
    ]
    seen = offsets.answered(offsets.on(draw, rows, cols), kept[0], plain.std, kept[1])
    return replace(given, offsets=seen)


def _little_noise(
    survey: Survey, where: tuple[slice, slice], rows: slice, cols: slice
) -> np.ndarray:
    """Return a block of a draw of the noise on some rows and columns, made little."""
    tall, wide = (part.stop - part.start for part in where)
    draw = np.random.default_rng(0).standard_normal((tall, wide, len(survey.bands)))
    whole = np.zeros((tall, wide, survey.shape[2]))
    whole[..., survey.bands] = LITTLE * survey.model.unwhiten(draw)
    around = [
        (max(w.start - p.start, 0), max(p.stop - w.stop, 0))
        for w, p in zip(where, (rows, cols), strict=True)
    ]
    inner = tuple(
        slice(max(p.start - w.start, 0), max(p.stop - w.start, 0))
        for w, p in zip(where, (rows, cols), strict=True)
    )
    return np.pad(whole[inner], (*around, (0, 0)))
