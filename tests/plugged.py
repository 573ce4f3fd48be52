"""Our own plug-in of formats, examples/importers, as if it were installed."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from trainplan.cli.files.profiles import profile_text
from trainplan.costmodel.catalog.entries import gpu
from trainplan.costmodel.plugins import plugins
from trainplan.profiler.fit.points import fitted
from trainplan.profiler.importers import IMPORTERS, ImportRequest, import_profile

PACKAGE = "trainplan_importers"


@contextmanager
def importers() -> Iterator[None]:
    """`IMPORTERS` with its formats."""
    plug_in = importlib.import_module(PACKAGE).PLUGIN
    one = plugins.Installed(plug_in, "trainplan-importers", "1.0", PACKAGE)
    with (
        mock.patch.object(plugins, "installed", lambda: (one,)),
        mock.patch.multiple(IMPORTERS, _all=None, _whose={}),
    ):
        yield


def simumax_profile(source: Path, output: Path) -> None:
    """What `plan import simumax SOURCE --gpu b200 --output OUTPUT` writes."""
    with importers():
        texts = {source.name: source.read_text("utf-8")}
        bare = import_profile("simumax", texts, ImportRequest("b200"))
    output.write_text(profile_text(fitted(bare, gpu("b200"))), encoding="utf-8")
