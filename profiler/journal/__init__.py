"""What a run measured so far: samples, how well their median is known, one record a line.

Book: what a clock timed, in order.
Done: a task ended well.
DOUBTFUL: flags of timings that another time may know better.
Effort: when to stop repeating.
Failed: a task ended with an error and the run went on, or it stopped the run twice.
Header: the first record.
Interrupted: the user stopped the run in a task that began.
JournalContent: all that a journal holds.
JournalFile: appends records.
labelled: samples with the timing of a point that follows from them, where there is one.
LeftOut: what a run ended without, as its budget was spent.
LineFile: a file of lines that is only ever appended to.
MOST_STARTS: a task that started this often and never ended is passed over.
noise_fraction: how far a timing may be off.
PATIENCE: a call so slow that its time is up this many times over is not repeated `FEWEST_REPEATS`
    times.
Record: one line of a journal, of any sort.
Remark: something to know about tasks that ended before, of each the last time.
Repeat: one sample, agreed upon by all ranks that took part in it.
repeat_until_known: samples until the median is known or the time is up.
Samples: the calls behind one timing, in the order they were made.
sealed: a record, which is a JSON object with fields, with its checksum.
Start: a task begins.
TaskName: a task as the journal knows it.
timings: all timings of some points.
unsealed: the records of whole lines, without their checksums.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.profiler.journal.attempts import DOUBTFUL, noise_fraction
    from trainplan.profiler.journal.file import JournalFile, LineFile
    from trainplan.profiler.journal.records import (
        MOST_STARTS,
        Done,
        Failed,
        Header,
        Interrupted,
        JournalContent,
        LeftOut,
        Record,
        Remark,
        Start,
        TaskName,
        sealed,
        unsealed,
    )
    from trainplan.profiler.journal.samples import Book, Samples, labelled, timings
    from trainplan.profiler.journal.timing import PATIENCE, Effort, Repeat, repeat_until_known
else:
    __getattr__ = door(__name__)
