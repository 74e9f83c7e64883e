"""Figures that Song et al. (2021) print: rank 7, window 20, step 4, 100 trials."""

from __future__ import annotations

NOISE_LEVELS = (0.025, 0.05, 0.075, 0.1, 0.125)
"""Noise levels of its first table."""

COVERAGE: dict[str, dict[float, tuple[float, float]]] = {
    "indian": {
        0.025: (0.9514, 0.0483),
        0.05: (0.9579, 0.0371),
        0.075: (0.9576, 0.0383),
        0.1: (0.9643, 0.0319),
        0.125: (0.9704, 0.0273),
    },
    "pavia-university": {
        0.025: (0.9573, 0.0515),
        0.05: (0.9476, 0.0292),
        0.075: (0.9556, 0.0263),
        0.1: (0.9652, 0.0233),
        0.125: (0.9735, 0.0205),
    },
    "washington": {
        0.025: (0.9411, 0.0583),
        0.05: (0.9368, 0.0348),
        0.075: (0.9501, 0.0311),
        0.1: (0.9626, 0.0266),
        0.125: (0.9712, 0.0297),
    },
}
"""Mean and standard deviation over elements of the coverage rate at 95 %."""

IMPULSE_SHARES = (0.05, 0.10, 0.20, 0.30)
IMPULSE_LEVELS = (0.05, 0.075, 0.1, 0.125)

IMPULSES: dict[str, dict[float, tuple[float, float, float, float]]] = {
    "indian": {
        0.05: (0.9006, 0.8429, 0.7309, 0.6278),
        0.075: (0.9348, 0.9063, 0.8395, 0.7621),
        0.1: (0.9516, 0.9340, 0.8888, 0.8293),
        0.125: (0.9624, 0.9495, 0.9148, 0.8657),
    },
    "pavia-university": {
        0.05: (0.9008, 0.8472, 0.7466, 0.6578),
        0.075: (0.9434, 0.9189, 0.8640, 0.8020),
        0.1: (0.9649, 0.9519, 0.9195, 0.8778),
        0.125: (0.9778, 0.9700, 0.9496, 0.9201),
    },
    "washington": {
        0.05: (0.9010, 0.8536, 0.7649, 0.6840),
        0.075: (0.9456, 0.9250, 0.8781, 0.8248),
        0.1: (0.9674, 0.9566, 0.9301, 0.8954),
        0.125: (0.9798, 0.9735, 0.9566, 0.9330),
    },
}
"""Coverage rate at 95 % by the share of impulses."""

SHAPIRO: dict[str, dict[float, float]] = {
    "indian": {0.05: 0.4239, 0.075: 0.1103, 0.1: 0.8498, 0.125: 0.4346},
    "pavia-university": {0.05: 0.1531, 0.075: 0.1924, 0.1: 0.7537, 0.125: 0.1531},
    "washington": {0.05: 0.2046, 0.075: 0.0585, 0.1: 0.6977, 0.125: 0.5331},
}
"""p-value of the Shapiro-Wilk test of one element."""

SECONDS: dict[str, tuple[float, float, float]] = {
    "indian": (7862, 653, 864),
    "pavia-university": (8393, 815, 930),
    "washington": (12437, 1023, 1590),
}
"""Seconds of 100 Monte Carlo trials (20 threads), low-rank step, low-rank step with σ."""
