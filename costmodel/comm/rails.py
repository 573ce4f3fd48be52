"""What leaves its rail in a rail-only network: of each axis, by the order of its ranks.

A rail joins the GPUs of one place in every scale-up domain, and nothing joins rails. Bytes for
another place of another domain go over the links of their own domain first, then by its rail.
Source: rail-only networks, Wang et al., arXiv:2307.12169.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel.columns import FloatColumn, IntColumn


def off_rail(
    size: IntColumn, stride: IntColumn, domain: int, rails: int, num_gpus: int
) -> tuple[FloatColumn, FloatColumn]:
    """Shares of what leaves domains that is for another rail: of rings, and of all-to-alls.

    A ring goes by as many channels as its emptiest domain has members; a channel stays on a rail
    that has a member in every domain. In an all-to-all each rank sends as much to every other. Of
    groups that borders cut in unlike ways the worst counts: all wait for it. A group of one stands
    for a message to the rank at distance `stride`.
    Source: derived; a rank's rail is its place in its domain times the rails over the GPUs of one.
    """
    pairs, rows = np.unique(np.stack([size, stride]), axis=1, return_inverse=True)
    shares = [_shares(n, d, domain, rails, num_gpus) for n, d in pairs.T.tolist()]
    ring, exchange = np.array(shares).reshape(-1, 2)[rows.ravel()].T
    return ring, exchange


@lru_cache(maxsize=4096)
def _shares(size: int, stride: int, domain: int, rails: int, num_gpus: int) -> tuple[float, float]:
    if size == 1:
        return (_hop(stride, domain, rails),) * 2
    ranks = size * stride
    blocks = min(domain // np.gcd(ranks, domain), max(1, num_gpus // ranks))
    starts = np.arange(blocks)[:, None] * ranks + np.arange(min(stride, domain))
    worst = np.zeros(2)
    for start in starts.ravel():
        members = start + np.arange(size) * stride
        places = members // domain - start // domain
        if places[-1]:
            worst = np.maximum(worst, _of_group(places, members % domain * rails // domain, rails))
    ring, exchange = worst.tolist()
    return ring, exchange


def _of_group(
    domains: NDArray[np.int64], rail: NDArray[np.int64], rails: int
) -> tuple[float, float]:
    _, held = np.unique(domains, return_inverse=True)
    width = int(held.max()) + 1
    counts = np.bincount(held * rails + rail, minlength=width * rails).reshape(width, rails)
    counts = counts.astype(np.float64)
    channels = counts.sum(axis=1).min()
    same = (counts.sum(axis=0) ** 2).sum() - (counts**2).sum()
    leaving = counts.sum() ** 2 - (counts.sum(axis=1) ** 2).sum()
    return 1 - counts.min(axis=0).sum() / channels, 1 - same / leaving


def _hop(stride: int, domain: int, rails: int) -> float:
    """Share of the messages between domains, to the rank at that distance, for another rail."""
    place = np.arange(domain)
    place = place[(place + stride) // domain > 0]
    other = (place + stride) % domain
    return float((place * rails // domain != other * rails // domain).mean()) if len(place) else 0.0
