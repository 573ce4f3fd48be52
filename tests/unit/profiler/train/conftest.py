"""One server that has imported megatron-core, for all tests that train."""

from importlib.util import find_spec

import pytest

from trainplan.profiler.train.client import Trainers


@pytest.fixture(scope="session")
def trainers():
    if find_spec("torch") is None or find_spec("megatron") is None:
        pytest.skip("training needs megatron-core: pip install '.[train]'")
    with Trainers("megatron-core") as started:
        yield started
