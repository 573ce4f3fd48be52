"""Output of nccl-tests, as text or as the JSON of `-J`.

Text names the test (`# Collective test starting: all_reduce_perf`; older versions only in the
name of the file), lists the ranks with their hosts, and has a row for each size: bytes, elements,
type, reduction, root, then microseconds and bandwidths out of place, and in place. Bytes are those
of the full tensor for every collective, and what one rank sends in `sendrecv`, in which all ranks
send and receive at once. Times are means over the iterations; with `-I` the JSON has each. What is
compared with the right result is counted as `#wrong`, out of place and in place, or `N/A`; older
versions print the largest difference in its place, which rounding makes, and some no root.

Source: NVIDIA/nccl-tests @a0b82b2 doc/PERFORMANCE.md (sizes), src/util.cu (columns, JSON version
3; writeBenchmarkLineBody).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from trainplan.costmodel.base import MICROSECOND, Entry, SpecError, json_entry, positive
from trainplan.costmodel.profiles import CollectivePoint, Failure, Operation, Profile, Timing
from trainplan.costmodel.residuals import MAD_OF_NORMAL
from trainplan.profiler.importers.request import ImportRequest, base_name, stated

OPERATIONS: Mapping[str, Operation] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "alltoall",
    "sendrecv": "p2p",
}
TEST = re.compile(r"(?P<name>[a-z_]+?)_perf")
NAMED = re.compile(rf"(?P<name>{'|'.join(OPERATIONS)})(?![a-z])")
"""A file that is called as its collective."""
STARTING = re.compile(r"#\s*Collective test starting:\s*(?P<name>\S+)")
RANK = re.compile(
    r"#\s+Rank\s+(?P<rank>\d+)\s+(?:Group\s+(?P<group>-?\d+)\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+device"
)
COLUMNS = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong")
"""Where no line names them."""
TIMES = ("time", "cputime")
WAYS = ("out_of_place", "in_place")


@dataclass(frozen=True, slots=True)
class _Rank:
    """Where a rank ran, and in which of the groups that ran at once."""

    number: int
    host: str
    group: str


@dataclass(frozen=True, slots=True)
class _Group:
    """Shape of the groups."""

    ranks: int
    per_node: int
    stride: int
    num_nodes: int
    """Of all ranks."""
    gpus_per_node: int


@dataclass(frozen=True, slots=True)
class _Row:
    """One size of a test."""

    num_bytes: int
    time: Timing
    wrong: float
    """Elements that did not have the right value."""


@dataclass(frozen=True, slots=True)
class _Test:
    """One run of one of the programs."""

    operation: Operation
    group: _Group
    rows: Sequence[_Row]


def read(texts: Mapping[str, str], request: ImportRequest) -> Profile:
    """Collectives by size; a size with wrong results is a failure, a run given twice counts once.

    Raises:
        SpecError: A file has no test, ranks or rows, or a collective nobody needs; all are wrong.
    """
    groups: list[_Group] = []
    points: dict[CollectivePoint, None] = {}
    failures: dict[Failure, None] = {}
    for file, text in sorted(texts.items()):
        is_json = text.lstrip().startswith("{")
        for test in _json(file, text) if is_json else _text(file, text):
            groups.append(test.group)
            points |= dict.fromkeys(_point(test, row) for row in test.rows if not row.wrong)
            failures |= dict.fromkeys(_failure(file, test, row) for row in test.rows if row.wrong)
    if failures and not points:
        first = next(iter(failures))
        raise SpecError(f"{first.item}: {first.detail}; no other row is left")
    return Profile(
        gpu=request.gpu,
        num_nodes=max(group.num_nodes for group in groups),
        gpus_per_node=request.gpus_per_node or max(group.gpus_per_node for group in groups),
        origins=request.origins("nccl-tests", texts),
        points=tuple(points),
        failures=tuple(failures),
    )


def _operation(file: str, name: str | None) -> Operation:
    """The collective of a test, by its name or that of the file."""
    found = TEST.search(base_name(name or file)) or NAMED.match(base_name(file))
    if not found:
        raise SpecError(
            f"{file}: no line '# Collective test starting: ...': call the file as the test that "
            "wrote it, such as all_reduce_perf.txt"
        )
    if found["name"] not in OPERATIONS:
        known = ", ".join(OPERATIONS)
        raise SpecError(f"{file}: {found['name']} is not used in training: give one of {known}")
    return OPERATIONS[found["name"]]


def _text(file: str, text: str) -> Iterator[_Test]:
    """Tests of a text, one below the other."""
    tests: list[tuple[str | None, list[str]]] = [(None, [])]
    for line in text.splitlines():
        if found := STARTING.match(line.strip()):
            tests.append((found["name"], []))
        tests[-1][1].append(line)
    named = tests[1:] or tests
    for name, lines in named:
        ranks = [
            _Rank(int(found["rank"]), found["host"], found["group"] or "")
            for found in map(RANK.search, lines)
            if found
        ]
        yield _Test(_operation(file, name), _group(file, ranks), tuple(_rows(file, lines)))


def _rows(file: str, lines: Sequence[str]) -> Iterator[_Row]:
    """Sizes and times; a size too small for the ranks is printed as 0 bytes."""
    empty, columns = True, list(COLUMNS)
    for line in lines:
        words = line.split()
        if words[:4] == ["#", *COLUMNS[:3]]:
            columns = words[1:]
        if not words or not (words[0].isascii() and words[0].isdigit()):
            continue
        at = next((i for i, name in enumerate(columns) if name in TIMES), len(words))
        if len(words) <= at + 2:
            raise SpecError(f"{file}: row {line.strip()[:40]!r} is cut: give the whole output")
        empty = False
        if int(words[0]):
            where = f"{file}: {words[0]} bytes: time"
            wrong = (word for name, word in zip(columns, words, strict=False) if name == "#wrong")
            time = stated(positive(where, words[at], MICROSECOND))
            yield _Row(int(words[0]), time, sum(map(_counted, wrong)))
    if empty:
        raise SpecError(f"{file}: no row with a size and times: give the output of nccl-tests")


def _counted(word: str) -> float:
    """Wrong elements; `N/A` where nobody looked."""
    try:
        return float(word)
    except ValueError:
        return 0.0


def _group(file: str, ranks: Sequence[_Rank]) -> _Group:
    """Shape of the first group; all groups are alike."""
    if not ranks:
        raise SpecError(f"{file}: no line '#  Rank  0 ... on <host> device': give the whole output")
    hosts = Counter(rank.host for rank in ranks)
    members = [rank for rank in ranks if rank.group == ranks[0].group]
    if len(members) < 2:
        raise SpecError(f"{file}: a group of one rank moves nothing: run on more GPUs (-g)")
    of_host = Counter(rank.host for rank in members)
    return _Group(
        ranks=len(members),
        per_node=max(of_host.values()),
        stride=max(1, members[1].number - members[0].number),
        num_nodes=len(hosts),
        gpus_per_node=max(hosts.values()),
    )


def _point(test: _Test, row: _Row) -> CollectivePoint:
    """A row; a message has two ends, of neighbours in the ring."""
    message, group = test.operation == "p2p", test.group
    return CollectivePoint(
        operation=test.operation,
        ranks=2 if message else group.ranks,
        per_node=min(2, group.per_node) if message else group.per_node,
        stride=group.stride,
        num_bytes=row.num_bytes,
        time=row.time,
    )


def _failure(file: str, test: _Test, row: _Row) -> Failure:
    """A row whose results were wrong: what is broken is not as fast as what works."""
    return Failure(
        item=file,
        detail=f"{test.operation} of {row.num_bytes} bytes: {row.wrong:g} results were wrong "
        "(#wrong), so the network or its library is broken and the time means nothing",
    )


def _json(file: str, text: str) -> Iterator[_Test]:
    """The test of a JSON file."""
    top = json_entry(file, text)
    config, program = top["config"], top["args"].elements()[0].value
    each = config["nthreads"].count() * config["ngpus"].count()
    ranks = []
    for process, device in enumerate(config["devices"].elements()):
        host, color = str(device["hostname"].value), str(device["group"].value)
        ranks += [_Rank(process * each + i, host, color) for i in range(each)]
    rows = tuple(_json_rows(top["results"]))
    yield _Test(_operation(file, str(program)), _group(file, ranks), rows)


def _json_rows(results: Entry) -> Iterator[_Row]:
    """Sizes and times out of place."""
    for row in results.elements():
        if not row["size"].number():
            continue
        each = row.get("out_of_place_per_iter")
        time = (
            _measured(each) if each else stated(row["out_of_place"]["time"].positive(MICROSECOND))
        )
        yield _Row(row["size"].count(), time, sum(_wrong(row, way) for way in WAYS))


def _wrong(row: Entry, way: str) -> float:
    """Wrong elements of one way; null where nobody looked."""
    found = row.get(way)
    count = found.get("nwrong") if found else None
    return count.number() if count else 0.0


def _measured(entry: Entry) -> Timing:
    """Median and spread of the iterations, without those to be skipped."""
    times = [time.positive(MICROSECOND) for time in entry["times_us"].elements()]
    skipped = entry.get("skipped_iterations")
    used = times[int(skipped.number()) :] if skipped else times
    middle = median(used or times)
    deviations = [abs(time - middle) for time in used or times]
    return Timing(
        seconds=middle,
        spread_fraction=MAD_OF_NORMAL * median(deviations) / middle,
        repeats=len(used or times),
    )
