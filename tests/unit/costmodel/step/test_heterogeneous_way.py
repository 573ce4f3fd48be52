"""The way through a pipeline whose stages take their own seconds."""

from types import SimpleNamespace

import numpy as np

from trainplan.costmodel.step.heterogeneous import _work

FORWARD = np.array([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0]])
BACKWARD, WEIGHT, MESSAGE = 3 * FORWARD, 0.5 * FORWARD, np.full((2, 3), 0.25)


def test_a_gradient_goes_home_without_the_products_that_are_split_off():
    """Two rows on three ranks: the backward pass of the first is split, that of the other not."""
    zero = np.zeros((3, 2))
    work = SimpleNamespace(forward=zero, backward=zero, weight=zero, unsynchronised=np.zeros(2))
    split = SimpleNamespace(splits_backward=np.array([True, False]))
    pipeline = SimpleNamespace(
        rows=np.array([0, 1]),
        shape=("any", 3, 1, 8),
        seconds=SimpleNamespace(forward=FORWARD, backward=BACKWARD, weight=WEIGHT),
        p2p=MESSAGE,
    )
    found = _work([SimpleNamespace(work=work, seconds=split)], np.zeros((3, 2), int), [pipeline])
    assert found.reach.T.tolist() == [[0.0, 1.25, 3.5], [0.0, 1.25, 3.5]]
    assert found.home.T.tolist() == [[0.0, 2.75, 8.0], [0.0, 3.25, 9.5]]
