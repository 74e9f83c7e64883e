"""Geometry: every element covered, cells consistent, bad sizes refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigmacube.core.lowrank.pairs import overlaps
from sigmacube.core.windows import Axis, WindowGrid


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    size = draw(st.integers(1, 25))
    return Axis(draw(st.integers(size, 90)), size, draw(st.integers(1, size)))


@given(axes())
def test_every_element_is_covered_and_windows_stay_inside(axis: Axis) -> None:
    covered = np.zeros(axis.length, dtype=int)
    for start in axis.starts:
        covered[start : start + axis.size] += 1
    assert covered.min() >= 1
    assert axis.starts[0] == 0
    assert axis.starts[-1] + axis.size == axis.length
    assert np.all(np.diff(axis.starts) >= 1)
    np.testing.assert_array_equal(np.repeat(axis.count, np.diff(axis.edges)), covered)


@given(axes())
def test_cells_name_exactly_the_windows_that_cover_them(axis: Axis) -> None:
    end = 0
    for cell in axis.cells():
        low, high = cell.elements.start, cell.elements.stop
        assert low == end
        windows = np.arange(cell.windows.start, cell.windows.stop)
        inside = (axis.starts <= low) & (high <= axis.starts + axis.size)
        np.testing.assert_array_equal(windows, np.flatnonzero(inside))
        end = high
    assert end == axis.length


@given(axes())
def test_overlaps_name_every_pair_that_shares_elements_once(axis: Axis) -> None:
    grid = WindowGrid(axis, Axis(3, 2, 1), Axis(3, 3, 3))
    seen = {}
    ones = np.ones((2 * len(axis), 1, axis.size, 2))
    for group in overlaps(grid):
        for a, b, shared in zip(group.first, group.second, group.pixels(ones).ravel(), strict=True):
            assert (a, b) not in seen
            seen[int(a), int(b)] = int(shared)
    covered = np.zeros((len(ones), axis.length * 3))
    for n, (i, j) in enumerate(np.ndindex(len(axis), 2)):
        covered[n].reshape(-1, 3)[grid.slices(i, j)[:2]] = 1
    counts = np.triu(covered @ covered.T)
    expected = {(int(a), int(b)): int(counts[a, b]) for a, b in np.argwhere(counts)}
    assert seen == expected


def test_edge_rule_adds_one_window_at_the_end() -> None:
    grid = WindowGrid.create((145, 144, 7), window=20, step=4)
    assert grid.rows.starts[-2:].tolist() == [124, 125]
    assert grid.cols.starts[-1] == 124
    assert grid.shape == (33, 32, 1)


def test_windows_may_cut_the_bands() -> None:
    grid = WindowGrid.create((20, 30, 11), window=(8, 9, 5), step=(4, 3, 2))
    assert grid.window == (8, 9, 5)
    assert grid.bands.starts.tolist() == [0, 2, 4, 6]
    assert WindowGrid.create((20, 30, 11), window=(8, 9, None), step=4).window == (8, 9, 11)


@pytest.mark.parametrize(
    ("window", "step", "message"),
    [
        (0, 1, "Invalid window 0 along rows. It must be at least 2"),
        (31, 4, "Invalid window 31 along rows. .* at most the 20 rows"),
        ((8, 40), 4, "Invalid window 40 along cols. .* at most the 30 cols"),
        (8, 0, "Invalid step 0 along rows"),
        (8, 9, "Invalid step 9 along rows. .* every element must be covered"),
        ((8, 8, 12), 4, "Invalid window 12 along bands"),
        ((8,), 4, r"Invalid window \(8,\)"),
        ("big", 4, "Invalid window 'big'"),
        (8.5, 4, "Invalid window 8.5"),
    ],
)
def test_bad_sizes_are_refused_with_the_rule(window: object, step: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WindowGrid.create((20, 30, 11), window=window, step=step)
