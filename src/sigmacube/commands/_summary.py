"""What a user sees at the end of ``sigmacube denoise``, in memory and tile by tile alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sigmacube.console import note, percent, table
from sigmacube.core.whitening import std_of_noise
from sigmacube.show.key_figures import FIT
from sigmacube.tiles.figures import Figures, gathered, tile_figures

if TYPE_CHECKING:
    from sigmacube.result import DenoisedCube
    from sigmacube.tiles import Outcome


@dataclass(frozen=True, eq=False)
class Summary:
    """The figures of a result that are told."""

    noise: float
    """Median over the bands that hold data."""
    noise_source: str | None
    figures: Figures
    ranks: np.ndarray
    residual_ratio: np.ndarray
    caveats: tuple[str, ...] = ()
    """What σ does not hold on this scene."""

    @classmethod
    def of_result(cls, result: DenoisedCube) -> Summary:
        """Return the summary of a result in memory."""
        seen = np.isfinite(result.estimate).any(axis=(0, 1))
        levels = np.broadcast_to(std_of_noise(result.noise), result.estimate.shape[2])
        rejected = None if result.rejected is None else np.asarray(result.rejected)
        estimate = np.asarray(result.estimate)
        std = None if result.std is None else np.asarray(result.std)
        source = result.settings.get("noise_source")
        figures = gathered([tile_figures(estimate, std, levels, rejected)])
        return cls(
            _median(levels[seen]), source, figures, result.ranks, result.residual_ratio,
            tuple(result.caveats),
        )  # fmt: skip

    @classmethod
    def of_outcome(cls, outcome: Outcome) -> Summary | None:
        """Return the summary of a run over tiles; None where it had only to be cleaned up."""
        if outcome.ranks is None or outcome.residual_ratio is None or outcome.figures is None:
            return None
        levels = std_of_noise(outcome.noise)
        levels = levels if levels.ndim == 0 or outcome.bands is None else levels[outcome.bands]
        return cls(
            _median(levels), outcome.noise_source, outcome.figures, outcome.ranks,
            outcome.residual_ratio, outcome.caveats,
        )  # fmt: skip

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of a label and a text."""
        source, found = self.noise_source, self.figures
        told = "" if source is None else f" ({source if source == 'given' else f'by {source}'})"
        yield "noise", f"median {self.noise:.3g}{told}"
        if np.isfinite(found.sigma):
            yield "σ", f"median {found.sigma:.3g}, {percent(found.sigma_share)} of the noise"
        ranks = self.ranks
        yield "rank", f"median {np.median(ranks):.0f}, from {ranks.min()} to {ranks.max()}"
        yield "masked", f"{percent(1 - found.known)} of the values"
        if found.set_aside is not None:
            share, band, pixel = found.set_aside
            yield (
                "set aside",
                f"{percent(share, 2)} of the values; at most {percent(band, 0)} of a band, "
                f"{percent(pixel, 0)} of a pixel",
            )
        above, below = self._misfit()
        text = f"in {percent(1 - above - below)} of the windows"
        if above + below:
            text += f"; residual above the noise in {percent(above)}, below in {percent(below)}"
        yield "model fits", text

    def notes(self) -> Iterator[str]:
        """Yield what σ does not hold, and what is wrong with the noise, if anything is."""
        yield from self.caveats
        above, below = self._misfit()
        if above > 0.1:
            yield (
                f"{percent(above, 0)} of the windows leave more variance than the noise explains; "
                "their σ is too small. A higher noise, a smaller window or --solver robust may "
                "help."
            )
        if below > 0.1:
            yield (
                f"{percent(below, 0)} of the windows leave less variance than the noise predicts; "
                "their σ is too large. A lower noise may help."
            )

    def tell(
        self,
        before: Sequence[tuple[str, str]],
        after: Sequence[tuple[str, str]] = (),
        *,
        err: bool = False,
    ) -> None:
        """Print the figures between other rows, and the notes."""
        table([*before, *self.rows(), *after], err=err)
        for text in self.notes():
            note(text)

    def _misfit(self) -> tuple[float, float]:
        """Return the shares of windows with more and with less variance than the noise predicts."""
        ratio = self.residual_ratio[np.isfinite(self.residual_ratio)]
        if ratio.size == 0:
            return 0.0, 0.0
        return float(np.mean(ratio > FIT)), float(np.mean(ratio < 1 / FIT))


def _median(levels: np.ndarray) -> float:
    return float(np.median(levels)) if levels.size else float("nan")
