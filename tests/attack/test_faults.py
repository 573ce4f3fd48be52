"""Two of the faults of `python -m tests.attack.faults`, which strikes at random."""

import signal

import pytest

from tests.attack.fault import Strike, attempt

pytest.importorskip("torch")
KILLED = Strike(2, "rank", 1, signal.SIGKILL, 3, 0.05)
STATED = Strike(1, "plan", 0, signal.SIGTERM, 3, 0.05)


@pytest.mark.parametrize("strike", [KILLED, STATED], ids=str)
def test_a_fault_ends_the_run_on_every_node_with_its_name_and_leaves_nothing(strike, tmp_path):
    assert attempt(strike, tmp_path, again=False) == []
