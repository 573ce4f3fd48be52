"""Explanations of one change."""

import pytest

from trainplan.planner.explanations import shadow_prices


@pytest.fixture
def only_changes(monkeypatch):
    """Of all changes that an explanation prices, those of these names are left."""
    every = shadow_prices.changes

    def hold(*names):
        def some(case, layout):
            return [one for one in every(case, layout) if one.name in names]

        monkeypatch.setattr(shadow_prices, "changes", some)

    return hold
