"""Scenes that do not fit in memory: tiles, workers, Dask, and runs that can be resumed."""

from sigmacube.scale.run import denoise_file

__all__ = ["denoise_file"]
