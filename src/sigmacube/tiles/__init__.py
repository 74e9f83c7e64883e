"""Scenes that do not fit in memory: tiles, workers, Dask, and runs that can be resumed."""

from sigmacube.tiles.run import Outcome, denoise_file

__all__ = ["Outcome", "denoise_file"]
