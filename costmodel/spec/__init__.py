"""What every stated document is made of: frozen, unknown keys refused, its errors in plain words.

Amount: GB/s, GiB or seconds.
AmountOrZero: the same, or none.
complaints: all that is wrong, in the order of the fields.
Degree: ranks, GPUs, nodes or stages.
first_complaint: what to print where one line must do.
LARGEST_SIZE: of a batch and of a sequence.
MISSING: pydantic's types of errors for a key that is not there.
OneLine: text that cannot steer the terminal that shows it.
shown: a value of user input, short enough for a message.
Sourced: a catalog number with its source.
Spec: an immutable, hashable value read from a file or given by the caller.
UNKNOWN: pydantic's type of error for a key that no document has.
Whole: sequences, tokens of a sequence or layers.
WholeOrZero: the same, or none.
"""

from trainplan.costmodel.spec.base import Sourced, Spec
from trainplan.costmodel.spec.bounds import (
    LARGEST_SIZE,
    Amount,
    AmountOrZero,
    Degree,
    OneLine,
    Whole,
    WholeOrZero,
)
from trainplan.costmodel.spec.validation_errors import (
    MISSING,
    UNKNOWN,
    complaints,
    first_complaint,
    shown,
)
