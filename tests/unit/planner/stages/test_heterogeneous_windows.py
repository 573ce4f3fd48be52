"""Windows of the layers of ranks in node groups."""

import numpy as np

from trainplan.planner.stages.problem.chunks import Windows


def test_the_cheapest_layers_fill_the_cheapest_ranks_first():
    windows = Windows(np.array([[1.0], [0.0], [0.0]]), np.array([[3.0], [2.0], [9.0]]))
    cost = np.array([[5.0], [1.0], [2.0]])
    costs = [
        a * 5 + b * 1 + c * 2
        for a in range(1, 4)
        for b in range(3)
        for c in range(10)
        if a + b + c == 6
    ]
    assert windows.cheapest(cost, 6)[0] == min(costs)


def test_windows_without_room_for_all_layers_hold_no_split():
    least, most = np.array([[0.0, 0.0], [1.0, 4.0]]), np.array([[2.0, 2.0], [3.0, 3.0]])
    assert Windows(least, most).hold(5).tolist() == [True, False]
    assert not Windows(least, most).hold(6).any()
