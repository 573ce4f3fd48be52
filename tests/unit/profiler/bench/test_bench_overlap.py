"""How much runs beside what is timed."""

import pytest

from trainplan.profiler.bench.overlap import COVER, counts


@pytest.mark.parametrize(("compute", "communication"), [(1e-3, 1e-4), (2e-4, 7e-4), (1e-4, 0.1)])
def test_on_a_gpu_products_are_many_and_messages_cover_them(compute: float, communication: float):
    found = counts("cuda", compute, communication)
    assert found.products >= 8
    assert found.messages * communication >= COVER * found.products * compute
    assert found.covering * compute >= COVER * communication


def test_on_a_cpu_one_product_is_enough():
    assert counts("cpu", 1e-3, 1e-3).products == 1
