"""Collectives and messages in the CSV files of Aceso's profiler.

`prim_<model>_<collective>_<ranks>gpus.csv` has MiB and milliseconds; an all-gather's size is what
one rank gives, of the others the whole input of one rank. `p2p_<intra|inter>_node.csv` has a line
of MiB and lines of GB/s.

Source: Liu et al., Aceso, EuroSys 2024, whose profiler writes them; meaning of sizes derived: so
8 A10G move 1.53 GB/s each in all-gathers of 1 MiB and 1.67 GB/s in all-reduces; were the gather's
size that of its result, 0.20 GB/s.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from trainplan.costmodel.base import GB, SpecError, positive
from trainplan.costmodel.profiles import CollectivePoint, Operation
from trainplan.profiler.importers import base_name, stated
from trainplan_importers.reading import MEBIBYTE, MILLISECOND, unknown_file

COLLECTIVE = re.compile(
    r"prim_.+_(?P<operation>all_gather|all_reduce|reduce_scatter|all_to_all)"
    r"_(?P<ranks>[1-9]\d{0,4})gpus\.csv"
)
MESSAGES = re.compile(r"p2p_(?P<place>intra|inter)_node\.csv")
COLLECTIVES: Mapping[str, Operation] = {
    "all_gather": "all_gather",
    "all_reduce": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "alltoall",
}
FAILED_MILLISECONDS = 1e6
"""Written, or more, where a collective failed or was larger than wanted."""


@dataclass(frozen=True, slots=True)
class Collectives:
    """What the files hold."""

    samples: Mapping[tuple[Operation, int, int], list[float]]
    """Seconds by operation, ranks and bytes of the full tensor, of each file that has them."""
    messages: Mapping[str, Mapping[int, float]]
    """Seconds by bytes, inside a node (`intra`) and between two (`inter`)."""

    def points(self, gpus_per_node: int) -> Iterator[CollectivePoint]:
        """One point for each size; the median where several files have it."""
        for (operation, ranks, num_bytes), seconds in sorted(self.samples.items()):
            yield CollectivePoint(
                operation=operation,
                ranks=ranks,
                per_node=min(ranks, gpus_per_node),
                num_bytes=num_bytes,
                time=stated(median(seconds)),
            )
        for place, sizes in sorted(self.messages.items()):
            for num_bytes, once in sorted(sizes.items()):
                yield CollectivePoint(
                    operation="p2p",
                    ranks=2,
                    per_node=2 if place == "intra" else 1,
                    stride=1 if place == "intra" else gpus_per_node,
                    num_bytes=num_bytes,
                    time=stated(once),
                )


def read_collectives(texts: Mapping[str, str]) -> Collectives:
    """Times of collectives and messages.

    Raises:
        SpecError: A file is no such file.
    """
    samples: dict[tuple[Operation, int, int], list[float]] = defaultdict(list)
    messages: dict[str, Mapping[int, float]] = {}
    for file, text in sorted(texts.items()):
        name = base_name(file)
        if found := COLLECTIVE.fullmatch(name):
            operation, ranks = COLLECTIVES[found["operation"]], int(found["ranks"])
            parts = ranks if operation == "all_gather" else 1
            for num_bytes, seconds in _samples(file, text):
                samples[operation, ranks, num_bytes * parts].append(seconds)
        elif found := MESSAGES.fullmatch(name):
            messages[found["place"]] = _messages(file, text)
        else:
            known = "gpt_1_3B_mbs1_tp1_algo0.csv, prim_..._2gpus.csv or p2p_intra_node.csv"
            raise unknown_file(file, "Aceso", known)
    return Collectives(samples, messages)


def _samples(file: str, text: str) -> Iterator[tuple[int, float]]:
    """Bytes and seconds, without those that failed."""
    lines = list(csv.reader(text.splitlines()))
    if not lines or lines[0] != ["data_size(MB)", "time(ms)"]:
        raise SpecError(f"{file}: the first line is not data_size(MB),time(ms): wrong file?")
    for number, line in enumerate(lines[1:], start=2):
        where = f"{file}: line {number}"
        if len(line) != 2:
            raise SpecError(f"{where}: expected a size and a time: give the whole file")
        num_bytes = round(positive(where, line[0], MEBIBYTE))
        milliseconds = positive(where, line[1])
        if milliseconds < FAILED_MILLISECONDS:
            yield max(num_bytes, 1), milliseconds * MILLISECOND


def _messages(file: str, text: str) -> Mapping[int, float]:
    """Seconds by bytes: the median of the lines below the sizes."""
    lines = [line for line in csv.reader(text.splitlines()) if line]
    if len(lines) < 2 or any(len(line) != len(lines[0]) for line in lines):
        raise SpecError(f"{file}: expected a line of sizes and lines of GB/s: give the whole file")
    seconds: dict[int, float] = {}
    for column, size in enumerate(lines[0]):
        num_bytes = round(positive(f"{file}: size {column + 1}", size, MEBIBYTE))
        rates = [positive(f"{file}: {size} MB", line[column], GB) for line in lines[1:]]
        seconds[max(num_bytes, 1)] = num_bytes / median(rates)
    return seconds
