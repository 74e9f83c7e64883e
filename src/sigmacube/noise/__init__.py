"""Noise: models of it, and estimators that find it on a scene."""
