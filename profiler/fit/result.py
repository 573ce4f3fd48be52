"""The numbers of a profile while they are fitted."""

from dataclasses import dataclass, field

from trainplan.costmodel.hardware import AttentionFit, CollectiveFit, GemmFit, GpuSpec
from trainplan.costmodel.spec import Sourced


@dataclass(slots=True)
class FitResult:
    """Numbers as they are fitted."""

    spec: GpuSpec
    source: str
    gemm: dict[str, GemmFit] = field(default_factory=dict)
    collectives: dict[str, CollectiveFit] = field(default_factory=dict)
    attention: AttentionFit | None = None
    constants: dict[str, Sourced] = field(default_factory=dict)
    nic: Sourced | None = None
    scatter: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def source_of(self, count: int, what: str) -> str:
        """Source of a number."""
        return f"{self.source}, {count} {what}"

    def constant(self, name: str, value: float, count: int, what: str) -> None:
        """Set a constant of the formulas; what the points do not tell apart from nothing stays."""
        if value <= 0:
            return
        self.constants[name] = Sourced(value=value, source=self.source_of(count, what))
