"""How far machines and layouts are from what the cost model says of them."""

from __future__ import annotations

from trainplan.costmodel.spec.base import Sourced, Spec


class LayoutSpreads(Spec):
    """Of layouts and trials."""

    shared: Sourced
    """Of what the model gets wrong of layouts that are alike."""
    likeness: Sourced
    """Steps between two layouts at which the correlation of `shared` has fallen to 1 / e."""
    own: Sourced
    """Of what the model gets wrong of one layout."""
    trial: Sourced
    """Of a measured step time of a few steps from the mean of many runs."""
    memory: Sourced
    """Of the peak over that of the model, alike for all layouts of a machine."""
    memory_own: Sourced
    """The same of one layout."""


class Spreads(Spec):
    """Contents of `catalog/spreads.toml`: standard deviations, in log units unless said."""

    scalars: dict[str, Sourced]
    """By `costmodel.measured.varied.SCALARS`; `fixed_seconds` in seconds."""
    layouts: LayoutSpreads
