"""Runtimes: a layout as a launch of one, and a launch of one as a job and a layout.

One folder a runtime, what writes its launches and what reads them; beside these what they share.

EXPORTERS: exporter of every runtime a plan can be written for, by runtime id.
Exporter: one runtime, how its command line is written.
LaunchConfig: one training command of one runtime, as it is written.
Argument: one option of its command line.
ConfigFile: a file that the runtime reads, written beside the script.
EntryPoint: the program every rank runs, a file.
ModuleEntry: the program every rank runs, a module.
EnvironmentVariable: a variable that the script sets.
RequiredVariable: a variable that the user must set.
UserVariable: a value that only the user knows.
READERS: reader of every runtime whose launches are read, in the order in which they are tried.
PLUGGED: those of plug-ins.
readers: both.
Reader: one runtime, which launches are its own and what they say.
Reading: a launch as a job and a layout.
Field: one field of them, and where it comes from.
Asked: what the user gives beside the launch.
Origin: stated, default, derived or assumed.
"""

from trainplan.planner.runtimes.config import (
    Argument,
    ConfigFile,
    EntryPoint,
    EnvironmentVariable,
    Exporter,
    LaunchConfig,
    ModuleEntry,
    RequiredVariable,
    UserVariable,
)
from trainplan.planner.runtimes.reading import Asked, Field, Origin, Reader, Reading
from trainplan.planner.runtimes.registry import EXPORTERS, PLUGGED, READERS, readers
