"""Of a large grid a sample is run that leaves no value out, of heavy properties fewer examples."""

from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace

import pytest

from tests.grids import Request, examples, sampled, some_cases


@dataclass(frozen=True, eq=False)
class Cell:
    name: str
    callspec: SimpleNamespace


CELLS = [
    Cell(name=f"test[{a}-{b}-{c}]", callspec=SimpleNamespace(params=params))
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


@pytest.mark.parametrize(("full", "number"), [(False, 3), (True, 8)])
def test_the_night_has_all_examples(monkeypatch, full, number):
    monkeypatch.setattr(Request, "full", full)
    assert examples(3, by_night=8).max_examples == number


@pytest.mark.parametrize(
    ("by_day", "cases"), [(1, [0]), (3, [0, 3, 6]), (4, [0, 2, 4, 6]), (9, [*range(7)])]
)
def test_some_cases_are_spread_over_all_and_the_night_has_every_one(monkeypatch, by_day, cases):
    monkeypatch.setattr(Request, "full", False)
    assert some_cases(range(7), by_day) == cases
    monkeypatch.setattr(Request, "full", True)
    assert some_cases(range(7), by_day) == [*range(7)]


def test_a_run_has_what_its_options_ask_for(request):
    assert Request.full == request.config.getoption("--full")
