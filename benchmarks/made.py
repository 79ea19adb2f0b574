"""Synthetic tensors of several kinds, drawn from a seed: the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = Any  # a NumPy array
Rank = tuple[int, ...]


def categorical_rows() -> Array:
    """Count the rows of a table of seven categories, which depend on a hidden class: most cells are empty."""
    rng, shape, classes, rows = np.random.default_rng(0), (6, 4, 9, 5, 12, 7, 3), 8, 6000
    kinds = rng.choice(classes, rows, p=rng.dirichlet(np.ones(classes)))
    columns = []
    for size in shape:
        odds = rng.dirichlet(np.full(size, 0.25), classes).cumsum(axis=1)
        columns.append((rng.random((rows, 1)) > odds[kinds, :-1]).sum(axis=1))
    counts = np.zeros(shape, np.int32)
    np.add.at(counts, tuple(columns), 1)
    return counts


def moving_blobs() -> Array:
    """Film six blobs that move over a textured ground, with noise: frames x rows x columns of bytes."""
    rng, (frames, rows, columns) = np.random.default_rng(1), (60, 90, 120)
    y, x, time = np.arange(rows)[:, None], np.arange(columns), np.arange(frames)
    ground = 60 + 25 * np.sin(x / 5 + np.sin(y / 9)) + 15 * rng.random((rows, columns))
    film = np.tile(ground, (frames, 1, 1))
    for _ in range(6):
        speed, phase, width, light = (
            rng.uniform(0.05, 0.2, 2),
            rng.uniform(0, 6, 2),
            rng.uniform(4, 12),
            rng.uniform(40, 120),
        )
        centre_y = rows / 2 * (1 + 0.8 * np.sin(speed[0] * time + phase[0]))
        centre_x = columns / 2 * (1 + 0.8 * np.sin(speed[1] * time + phase[1]))
        squares = (y - centre_y[:, None, None]) ** 2 + (x - centre_x[:, None, None]) ** 2
        film += light * np.exp(-squares / (2 * width**2))
    return np.clip(film + rng.normal(0, 4, film.shape), 0, 255).astype(np.uint8)


def planted_tucker() -> Array:
    """Draw Poisson counts around a Tucker model with uneven factors."""
    rng, shape, rank = np.random.default_rng(2), (90, 70, 50), (6, 5, 4)
    model = rng.gamma(0.4, 1.0, rank)
    for mode, (size, r) in enumerate(zip(shape, rank)):
        model = np.moveaxis(np.tensordot(rng.gamma(0.3, 1.0, (size, r)), model, (1, mode)), 0, mode)
    return rng.poisson(3 * model / model.mean())


def planted_blocks() -> Array:
    """Draw Poisson counts with one rate per block, where the blocks are random sets of indices."""
    rng, shape, rank = np.random.default_rng(3), (80, 100, 60), (8, 8, 6)
    rates = rng.gamma(0.3, 2.0, rank)
    return rng.poisson(rates[np.ix_(*(rng.integers(0, r, size) for size, r in zip(shape, rank)))])


def spectra() -> Array:
    """Mix the smooth spectra of six materials by smooth maps of their shares: rows x columns x bands, with noise."""
    rng, (rows, columns, bands), materials = np.random.default_rng(4), (80, 90, 110), 6
    y, x, band = np.arange(rows)[:, None, None], np.arange(columns)[:, None], np.arange(bands)
    waves = rng.normal(size=(12, materials)) / (1 + np.arange(12))[:, None]
    maps = sum(
        wave * np.sin(rng.uniform(0.02, 0.15) * y + rng.uniform(0.02, 0.15) * x + rng.uniform(0, 6)) for wave in waves
    )
    shares = np.exp(4 * maps)
    shares /= shares.sum(axis=2, keepdims=True)
    peaks, widths = rng.uniform(0, bands, (4, materials, 1)), rng.uniform(5, 25, (4, materials, 1))
    members = (rng.random((4, materials, 1)) * np.exp(-(((band - peaks) / widths) ** 2))).sum(axis=0) + 0.1
    return np.maximum(shares @ members * (1 + 0.03 * rng.normal(size=(rows, columns, bands))), 0)


def relations() -> Array:
    """Draw which of several relations hold between people in overlapping groups: mostly 0, else 1."""
    rng, (people, kinds), groups = np.random.default_rng(5), (60, 15), 9
    member = rng.dirichlet(np.full(groups, 0.15), people)
    odds = rng.beta(0.15, 1.2, (groups, groups, kinds))
    return (rng.random((people, people, kinds)) < np.einsum("ia,jb,abk->ijk", member, member, odds)).astype(np.uint8)


MADE: Mapping[str, tuple[Callable[[], Array], Rank]] = {
    "categorical rows": (categorical_rows, (4, 3, 4, 3, 4, 4, 2)),
    "moving blobs": (moving_blobs, (12, 15, 15)),
    "planted Tucker": (planted_tucker, (6, 5, 4)),
    "planted blocks": (planted_blocks, (8, 8, 6)),
    "spectra": (spectra, (12, 12, 6)),
    "relations": (relations, (10, 10, 6)),
}
"""Each tensor with the rank at which it is decomposed."""
