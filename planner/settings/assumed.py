"""What a plan states of each setting that its answer is priced with."""

from collections.abc import Iterable

from trainplan.costmodel.spec import Spec


class Assumed(Spec):
    """A setting that the answer is priced with, and what it buys."""

    option: str
    """As `--option` takes it; `transport`: as a cluster file states it of its adapters; of the
    software `--runtime-version` with its release."""
    default: bool
    """The runtime does so by itself; else the job or the search states it."""
    saves_fraction: float | None
    """(step time without it - step time) / step time without it, of this layout; null: it is off,
    or the layout does not run without it."""
    needing: str = ""
    """A setting that does not run without it, off too in what it saves; empty: none."""

    @property
    def text(self) -> str:
        """The option and its share."""
        saved, default = self.saves_fraction, " (default)" * self.default
        needing = f" with {self.needing}" * bool(self.needing)
        if saved is None:
            return f"{self.option}{default}"
        does = "costs" if saved < -0.5e-3 else "saves"
        much = "less than 0.1" if 0 < abs(saved) < 0.5e-3 else f"{abs(100 * saved):.1f}"
        return f"{self.option} {does} {much} %{needing}{default}"


def assumed_text(assumed: Iterable[Assumed]) -> str:
    """All of them, for the end of a line."""
    return ", ".join(one.text for one in assumed)
