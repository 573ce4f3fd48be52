"""How far machines and layouts are from the cost model."""

from trainplan.costmodel.spec import Sourced, Spec


class LayoutSpreads(Spec):
    """Of layouts and trials."""

    shared: Sourced
    """Of what the model gets wrong of similar layouts."""
    likeness: Sourced
    """Steps between two layouts at which the correlation of `shared` has fallen to 1 / e."""
    own: Sourced
    """Of what the model gets wrong of one layout."""
    trial: Sourced
    """Of a measured step time of a few steps from the mean of many runs."""
    memory: Sourced
    """Of the peak over that of the model, the same for all layouts of a machine."""
    memory_own: Sourced
    """The same of one layout."""


class RunSpreads(Spec):
    """Of whole steps of one machine: what runs share beyond the model, and what each has alone."""

    machine_seen: Sourced
    """Of all steps of a machine and its software, where the fit saw runs of that GPU, precision and
    runtime."""
    machine_unseen: Sourced
    """The same, where it saw none."""
    family: Sourced
    """Of all models of a family, `costmodel.calibration.effects.family_of`."""
    model: Sourced
    """Of one model at one sequence length."""
    layout: Sourced
    """Of one layout; wide tails: beyond it an error counts with its size, not with its square."""
    carried: Sourced
    """Share of what a machine has that it also has in another precision or runtime."""


class Spreads(Spec):
    """Contents of `catalog/spreads.toml`: standard deviations, in log units unless stated."""

    scalars: dict[str, Sourced]
    """By `costmodel.measured.varied.SCALARS`; `fixed_seconds` in seconds."""
    layouts: LayoutSpreads
    runs: RunSpreads
