"""Of a large grid a sample is run that leaves no value out."""

from itertools import product
from types import SimpleNamespace

from tests.grids import sampled

CELLS = [
    SimpleNamespace(name=f"test[{a}-{b}-{c}]", callspec=SimpleNamespace(params=params))
    for a, b, c in product(range(9), range(4), range(3))
    if (params := {"a": a, "b": b, "c": c})
]


def test_every_value_of_every_parameter_is_in_the_sample():
    found = list(sampled(CELLS))
    for name, count in (("a", 9), ("b", 4), ("c", 3)):
        assert {cell.callspec.params[name] for cell in found} == set(range(count))
    assert len(found) < len(CELLS) / 3


def test_the_sample_depends_on_nothing_but_names():
    names = [[cell.name for cell in sampled(cells)] for cells in (CELLS, reversed(CELLS))]
    assert names[0] == names[1]


def test_one_cell_is_its_own_sample():
    assert list(sampled(CELLS[5:6])) == CELLS[5:6]
