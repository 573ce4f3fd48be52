"""Step time and memory out of training logs and profiler traces.

COLOUR: escape sequences of terminals, to leave out.
GrowingFile: a text file that another process appends to.
LogObservation: what a log holds.
LogReading: reads a log line by line, in all formats at once.
observe: step time of a training log or a trace, without its warm-up.
StatedRun: what turns tokens per second into a step time, and shows whether the log is of this
    job.
"""

from trainplan.profiler.logs.formats.base import StatedRun
from trainplan.profiler.logs.observations import LogObservation, observe
from trainplan.profiler.logs.reading import COLOUR, GrowingFile, LogReading
