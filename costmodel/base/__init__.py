"""Errors, units, and how pydantic's complaints are put in our words.

Everything may import this room and it imports nothing of ours. Inside the program quantities are
bytes, seconds and FLOP; conversions are in `units` alone. An error is a child of `PlanError` and
names what, where and what to do.

BYTES_BF16: bytes of a number of 16 bits.
BYTES_FP32: bytes of a number of 32 bits.
BYTES_FP8: bytes of a number of 8 bits.
CatalogError: a name that is in no catalog.
did_you_mean: `did you mean 'tp'?`, or nothing.
door: the door of a room whose names are imported when they are first used.
Entry: a value of a JSON file.
GB: bytes of a gigabyte.
GIB: bytes of a gibibyte.
Identical: equal only to a key of the same object.
json_entry: the top of a JSON file.
long_unit: seconds of the unit that a duration is stated in, and its name.
MICROSECOND: seconds of a microsecond.
NumberKind: what a typed number is of: a count, a length, a duration, a size, a rate.
PlanError: the parent of all errors for bad input.
positive: a number above zero, times `scale`.
read_json: what a text of a user holds, with finite numbers and no key twice.
read_number: a number as it is typed, such as `128k`, `2w` or `30GiB`.
SECONDS_PER_DAY: seconds of a day.
SECONDS_PER_HOUR: seconds of an hour.
shortened: a text a message may repeat.
SpecError: a value in a model, cluster, training or layout description is wrong.
TERA: 10^12: FLOP of a TFLOP.
unknown_name: error for a name that is not in a catalog, with the nearest names that are.
UnsupportedError: something real that this project does not model or a runtime cannot express.
"""

from trainplan.costmodel.base.doors import door
from trainplan.costmodel.base.entries import Entry, json_entry, positive
from trainplan.costmodel.base.errors import (
    CatalogError,
    PlanError,
    SpecError,
    UnsupportedError,
    did_you_mean,
    shortened,
    unknown_name,
)
from trainplan.costmodel.base.identical import Identical
from trainplan.costmodel.base.json_text import read_json
from trainplan.costmodel.base.quantities import NumberKind, read_number
from trainplan.costmodel.base.units import (
    BYTES_BF16,
    BYTES_FP8,
    BYTES_FP32,
    GB,
    GIB,
    MICROSECOND,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    TERA,
    long_unit,
)
