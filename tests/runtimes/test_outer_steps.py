"""Bytes that torchft's own DiLoCo sends among processes of a CPU, as the loopback counts them.

Needs torchft and a network of its own (`unshare -rn`): without one the tests are skipped.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.outer.outer_step import sent_bytes

pytestmark = pytest.mark.runtime
BEYOND = 0.01
"""Headers, quorums and heartbeats, over the bytes of the weights."""
ROUNDS = 2


def counted(islands, every, fragments):
    if importlib.util.find_spec("torchft") is None:
        pytest.skip("torchft is not installed")
    alone = ["unshare", "-rn"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network of its own may be made here")
    program = Path(__file__).parent / "outer_step_bytes.py"
    words = [*alone, sys.executable, str(program)]
    words += [str(number) for number in (islands, every, fragments, ROUNDS)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("islands", "every", "fragments"), [(2, 4, 1), (3, 4, 2)])
def test_a_round_sends_the_bytes_of_the_formula(islands, every, fragments):
    found = counted(islands, every, fragments)
    outer = OuterSpec(islands=islands, every=every, fragments=fragments, gb_per_s=1.0)
    expected = islands * sent_bytes(found["params"], outer)
    assert len(found["rounds"]) == ROUNDS
    for count in found["rounds"]:
        assert expected <= count <= (1 + BEYOND) * expected
    if fragments == 1:
        assert found["alike"], "islands have the same weights after a sync"
