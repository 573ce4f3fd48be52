"""A checksum in every record of a journal: what changed on its drive is told from what was written.

Of sixty flipped digits nineteen were read as other numbers without one.
"""

import re
from collections.abc import Iterator
from zlib import crc32

from trainplan.costmodel.base import SpecError

SEAL = re.compile(r',"crc32":"([0-9a-f]{8})"\}\r?$')
"""The last field of a record: of the text without it. Line ends that a copy changed are no harm.

Source: any change of up to 32 bits in a row changes a CRC of 32 bits, and of other changes all but
one of 2**32 (Peterson and Brown, Cyclic Codes for Error Detection, Proceedings of the IRE 1961).
"""


def sealed(record: str) -> str:
    """A record, which is a JSON object with fields, with its checksum."""
    return f'{record[:-1]},"crc32":"{_sum(record)}"}}'


def unsealed(text: str, journal: str, redo: str, again: str) -> Iterator[str]:
    """The records of whole lines, without their checksums.

    A journal whose first line has none is of a former version: its lines may have none. `redo` says
    what happens when a line is removed, `again` how all is made anew.

    Raises:
        SpecError: A line is not as it was written.
    """
    lines = text.split("\n")[:-1]
    needed = bool(lines) and SEAL.search(lines[0]) is not None
    for number, line in enumerate(lines, start=1):
        seal = SEAL.search(line)
        record = line if seal is None else f"{line[: seal.start()]}}}"
        if (needed and seal is None) or (seal and seal[1] != _sum(record)):
            mend = again if number == 1 else f"remove the line and {redo}, or {again}"
            raise SpecError(
                f"line {number} of {journal} is not as it was written, its checksum is "
                f"{'wrong' if seal else 'missing'}: {mend}"
            )
        yield record


def _sum(record: str) -> str:
    return f"{crc32(record.encode()):08x}"
