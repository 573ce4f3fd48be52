"""What the importers share: the question, and what a file says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.spec import ModelSpec
from trainplan.costmodel.spec.evidence.profile import Origin, Timing
from trainplan.costmodel.spec.job import Precision

MILLISECOND = 1e-3
MEBIBYTE = 2**20
GIBIBYTE = 2**30


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What files of other tools do not say; null where the caller does not either."""

    gpu: str
    """Catalog name."""
    model: ModelSpec | None = None
    seq_length: int | None = None
    precision: Precision | None = None
    gpus_per_node: int | None = None
    source: str = ""
    """Where the files come from: repository, commit, licence."""

    def need_model(self, file: str) -> ModelSpec:
        """The model the layers are of.

        Raises:
            SpecError: The caller gave none.
        """
        if self.model is None:
            raise SpecError(f"{file} does not say which model its layers are of: give --model")
        return self.model

    def need_seq_length(self, file: str) -> int:
        """Tokens of a sequence.

        Raises:
            SpecError: The caller gave none.
        """
        if self.seq_length is None:
            raise SpecError(f"{file} does not say how long its sequences are: give --seq-length")
        return self.seq_length

    def need_precision(self, file: str) -> Precision:
        """Format of the products.

        Raises:
            SpecError: The caller gave none.
        """
        if self.precision is None:
            raise SpecError(f"{file} does not say its number format: give --precision")
        return self.precision

    def origins(self, tool: str, texts: Mapping[str, str]) -> tuple[Origin, ...]:
        """The source given, or the tool and its files."""
        first = min(texts)
        files = first if len(texts) == 1 else f"{first} and {len(texts) - 1} more"
        return (Origin(source=self.source or f"{tool}: {files}"),)


def stated(seconds: float) -> Timing:
    """A time whose repeats are not known."""
    return Timing(seconds=seconds, flags=("stated",))


def base_name(file: str) -> str:
    """The name without folders."""
    return file.replace("\\", "/").rsplit("/", 1)[-1]


def unknown_file(file: str, tool: str, known: str) -> SpecError:
    """The error of a file whose name says nothing."""
    return SpecError(f"{file}: not a name {tool} writes: expected {known}")
