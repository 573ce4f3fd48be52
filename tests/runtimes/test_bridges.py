"""The table of what Megatron-Bridge builds is that of its own code at the pinned commit."""

import json
import subprocess
import sys

import pytest

from tests.runtimes.verdicts import CHECKERS, without_checkout
from trainplan.costmodel.families.bridges import bridges

pytestmark = pytest.mark.runtime
STEPS = sorted({one.step for one in bridges() if one.step})


@pytest.fixture(scope="module")
def release():
    if absent := without_checkout("megatron-bridge"):
        pytest.skip(absent)
    command = [sys.executable, str(CHECKERS / "list_bridges.py"), *STEPS]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def test_the_architectures_are_those_of_its_own_list(release):
    assert release["architectures"] == sorted(one.architecture for one in bridges())


def test_every_forward_step_is_there(release):
    assert release["steps"] == STEPS


def test_remote_code_is_needed_where_no_class_is_there(release):
    known = set(release["model_types"])
    for bridge in bridges():
        assert bridge.remote == (bool(bridge.model_types) and known.isdisjoint(bridge.model_types))
