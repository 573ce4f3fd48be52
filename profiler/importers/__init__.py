"""Profiles that people already have, in the formats of other tools.

nccl-tests is read here, other planners' files by the plug-in in examples/importers.

import_profile: a profile out of files of a format
IMPORTERS: the formats by name, with those of plug-ins
Importer: one of them
ImportRequest: what the files do not state
stated: a time whose repeats are not known
base_name: name of a file without its folders
"""

from trainplan.profiler.importers.registry import IMPORTERS, Importer, import_profile
from trainplan.profiler.importers.request import ImportRequest, base_name, stated
