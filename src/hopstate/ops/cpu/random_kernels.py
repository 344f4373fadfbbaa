# mypy: ignore-errors
"""Counter-based random numbers inside compiled loops: the same whatever the number of threads or the batch cut.

Source: splitmix64 (Steele, Lea, Flood 2014).
"""

from __future__ import annotations

import numpy as np
from numba import njit

STEP = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)


@njit(cache=True, nogil=True, inline="always")
def mix(z):
    """Return z with its bits scattered: splitmix64's output function."""
    z = (z ^ (z >> np.uint64(30))) * _M1
    z = (z ^ (z >> np.uint64(27))) * _M2
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def seeded(seed, stream):
    """Return the state of random stream number `stream` under a seed."""
    return mix(mix(np.uint64(seed) + STEP) ^ (np.uint64(stream) * STEP))


@njit(cache=True, nogil=True)
def below(state, n):
    """Return (a uniform integer in 0..n-1, the next state)."""
    state = state + STEP
    return np.int64((mix(state) >> np.uint64(11)) * (n / 9007199254740992.0)), state
