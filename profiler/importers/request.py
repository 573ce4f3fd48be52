"""What importers share: the options of `plan import`, and times out of files."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.job import Precision
from trainplan.costmodel.profiles import Origin, Timing


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
