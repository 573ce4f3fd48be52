"""The formats by name."""

from __future__ import annotations

from trainplan.profiler.importers import Importer
from trainplan_importers import aceso, galvatron, metis, sailor, simumax

ACESO = Importer("aceso", "CSV files of Aceso's profiler: operations, collectives", aceso.read)
GALVATRON = Importer("galvatron", "JSON files of Galvatron: layers, bandwidths", galvatron.read)
METIS = Importer("metis", "JSON files of Metis: time of each layer", metis.read)
SAILOR = Importer("sailor", "JSON files of Sailor: layers, network coefficients", sailor.read)
SIMUMAX = Importer("simumax", "system JSON of SimuMax: operations, networks", simumax.read)
