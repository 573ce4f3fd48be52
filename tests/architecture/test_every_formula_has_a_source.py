"""A number without a source does not merge."""

import importlib
import inspect
import pkgutil

import pytest

from trainplan import costmodel

COLUMNS = ("FloatColumn", "tuple[FloatColumn, FloatColumn]")


def members(module):
    """Functions, methods and properties written in a module."""
    for name, value in inspect.getmembers(module):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            yield name, value
        if inspect.isclass(value):
            for attribute, method in vars(value).items():
                function = method.fget if isinstance(method, property) else method
                if inspect.isfunction(function):
                    yield f"{name}.{attribute}", function


def formulas():
    for info in pkgutil.walk_packages(costmodel.__path__, "trainplan.costmodel."):
        module = importlib.import_module(info.name)
        for name, function in members(module):
            if function.__annotations__.get("return") in COLUMNS:
                yield pytest.param(function, id=f"{info.name}.{name}")


def test_formulas_are_found():
    assert len(list(formulas())) > 40


@pytest.mark.parametrize("function", list(formulas()))
def test_every_formula_has_a_source(function):
    assert "Source:" in (function.__doc__ or "")
