"""Formats by name: ours, and those of plug-ins."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from trainplan.costmodel.base import SpecError, unknown_name
from trainplan.costmodel.plugins import Registry
from trainplan.costmodel.profiles import Profile
from trainplan.costmodel.spec import first_complaint
from trainplan.profiler.importers import nccl_tests
from trainplan.profiler.importers.request import ImportRequest


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
        "nccl-tests": Importer(
            "nccl-tests", "output or -J file of all_reduce_perf and others", nccl_tests.read
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
        raise unknown_name("format", name, IMPORTERS, "plug-ins add others (examples/importers)")
    importer = IMPORTERS[name]
    if not texts:
        raise SpecError(f"no file to import: give {importer.reads}")
    try:
        return importer.read(texts, request)
    except ValidationError as error:
        files = ", ".join(sorted(texts)[:3])
        raise SpecError(f"{files}: {first_complaint(error).text}: correct the file") from None
