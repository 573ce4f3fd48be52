"""Profiles that people already have, in the formats of other tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from trainplan.costmodel.base import SpecError, unknown_name
from trainplan.costmodel.base.plugins import Registry
from trainplan.costmodel.base.validation_errors import first_complaint
from trainplan.costmodel.spec.evidence.profile import Profile
from trainplan.profiler.importers import aceso, galvatron, metis, nccl_tests, sailor, simumax
from trainplan.profiler.importers.reading import ImportRequest

__all__ = ["IMPORTERS", "ImportRequest", "Importer", "import_profile"]


@dataclass(frozen=True, slots=True)
class Importer:
    """A format that can be read."""

    name: str
    reads: str
    """Which files of which tool."""
    read: Callable[[Mapping[str, str], ImportRequest], Profile]
    """Profile of the contents by file name."""


IMPORTERS: Mapping[str, Importer] = Registry(
    "importers",
    {
        importer.name: importer
        for importer in (
            Importer("aceso", "CSV files of Aceso's profiler: operations, collectives", aceso.read),
            Importer("galvatron", "JSON files of Galvatron: layers, bandwidths", galvatron.read),
            Importer("metis", "JSON files of Metis: time of each layer", metis.read),
            Importer(
                "nccl-tests", "output or -J file of all_reduce_perf and others", nccl_tests.read
            ),
            Importer("sailor", "JSON files of Sailor: layers, network coefficients", sailor.read),
            Importer("simumax", "system JSON of SimuMax: operations, networks", simumax.read),
        )
    },
    Importer,
)


def import_profile(name: str, texts: Mapping[str, str], request: ImportRequest) -> Profile:
    """Profile out of files of another tool.

    Args:
        name: Key of `IMPORTERS`.
        texts: Contents by file name; some formats say things in the name.
        request: What the files do not say.

    Raises:
        CatalogError: No such format.
        SpecError: No file, or one that is wrong: names the file, the key and what to do.
    """
    if name not in IMPORTERS:
        raise unknown_name("format", name, IMPORTERS)
    importer = IMPORTERS[name]
    if not texts:
        raise SpecError(f"no file to import: give {importer.reads}")
    try:
        return importer.read(texts, request)
    except ValidationError as error:
        files = ", ".join(sorted(texts)[:3])
        raise SpecError(f"{files}: {first_complaint(error).text}: correct the file") from None
