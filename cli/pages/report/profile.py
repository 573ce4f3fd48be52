"""The report of `plan profile`: links, curves over their samples, timings to doubt, the machine."""

from collections import Counter
from collections.abc import Iterator, Sequence

from trainplan.cli.blocks import (
    Block,
    Columns,
    Fact,
    Facts,
    Folded,
    Page,
    Paragraph,
    Section,
    Table,
    number,
    table,
)
from trainplan.cli.pages.profile import NOT_ODD, curves_table, power_table, timings, waiting
from trainplan.cli.pages.report.profile_curves import bandwidth_charts, collective_charts
from trainplan.cli.pages.report.profile_links import is_odd, link_charts
from trainplan.cli.pages.report.profile_products import attention_charts, product_charts
from trainplan.cli.words import gib, percent, plural, seconds
from trainplan.costmodel.profiles import Host, Point, Profile, Timing

FEW, MOST_DOUBTFUL = 15, 500
"""Timings to doubt that are seen at once, and at all."""
FLAGS = {
    "noisy": "repeats do not agree",
    "drift": "repeats change while it is measured",
    "outliers": "some repeats lie far from the others",
    "throttled": "the GPU reports that it was slowed down",
    "with_host": "the GPU may have waited for Python",
}


def profile_page(profile: Profile) -> Page:
    """The report of measurements."""
    machine = f"{profile.num_nodes} x {profile.gpus_per_node} {profile.gpu}"
    return Page(
        title=f"Measured: {machine}",
        answer=f"{plural(len(profile.points), 'point')} of {machine}.",
        certainty=tuple(_certainty(profile)),
        facts=Facts(tuple(_facts(profile))),
        sections=tuple(_sections(profile)),
    )


def _sections(profile: Profile) -> Iterator[Section]:
    parts = (
        ("curves", "Curves", tuple(one for one in (curves_table(profile),) if one.rows)),
        ("products", "Matrix products and attention", (
            *product_charts(profile), *attention_charts(profile))),
        ("collectives", "Collectives by size", tuple(collective_charts(profile))),
        ("links", "Links", tuple(link_charts(profile))),
        ("bandwidths", "Memory, copies and drives", tuple(bandwidth_charts(profile))),
        ("power", "Power, and layers that wait for Python", tuple(_host(profile))),
        ("doubtful", "Timings to doubt", tuple(_doubtful(profile))),
        ("machine", "Machine", tuple(_machine(profile))),
    )  # fmt: skip
    for name, title, blocks in parts:
        if blocks:
            yield Section(name, title, blocks)


def _odd(profile: Profile) -> list[tuple[Point, str, Timing]]:
    """Timings that something is wrong with."""
    return [
        (point, name, timing)
        for point in profile.points
        for name, timing in timings(point)
        if is_odd(timing)
    ]


def _certainty(profile: Profile) -> Iterator[Paragraph]:
    odd = _odd(profile)
    count = sum(1 for point in profile.points for _ in timings(point))
    if odd:
        yield Paragraph(
            f"{len(odd):,} of {plural(count, 'timing')} are to be doubted; they are marked in the "
            "charts and listed below.",
            "doubtful",
        )
    elif count:
        yield Paragraph(f"None of {plural(count, 'timing')} is to be doubted.", "good")
    for failure in profile.failures:
        yield Paragraph(f"Not measured: {failure.item}: {failure.detail}", "bad")
    for note in profile.notes:
        yield Paragraph(note)


def _facts(profile: Profile) -> Iterator[Fact]:
    yield Fact("GPU", profile.gpu, f"{profile.num_nodes} x {profile.gpus_per_node}")
    if profile.software:
        written = (
            profile.software.cuda and f"CUDA {profile.software.cuda}",
            profile.software.backend,
        )
        yield Fact("torch", profile.software.torch, ", ".join(filter(None, written)))
    wall = sum(origin.wall_seconds or 0.0 for origin in profile.origins)
    if wall:
        yield Fact("took", seconds(wall))
    if profile.nic_gb_per_s:
        yield Fact("between nodes", f"{profile.nic_gb_per_s.value:.4g} GB/s", "of one GPU")
    odd = Counter(flag for _, _, timing in _odd(profile) for flag in timing.flags)
    for flag, times in odd.most_common():
        if flag not in NOT_ODD:
            yield Fact(f"timings {flag}", f"{times:,}", FLAGS.get(flag, ""), "doubtful")


def _host(profile: Profile) -> Iterator[Block]:
    power = power_table(profile)
    if power.rows:
        yield power
    slow = [(what, time.in_a_row, time.seconds) for what, time in waiting(profile)]
    if slow:
        columns = ("pass", number("to queue", seconds), number("to run", seconds))
        yield table("Passes that Python queues slower than the GPU runs them", columns, slow)


def described(point: Point) -> str:
    """What was measured, without the results: `gemm, m 4096, n 4096, k 1024`."""
    fixed = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in point.model_dump(
            exclude_defaults=True, exclude={"kind", "model"}
        ).items()
        if isinstance(value, int | str) and not isinstance(value, bool)
    ]
    return ", ".join((point.kind, *fixed))


def _doubtful(profile: Profile) -> Iterator[Block]:
    odd = _odd(profile)
    if not odd:
        return
    shown = sorted(odd, key=lambda entry: -entry[2].spread_fraction)
    yield _doubtful_table(f"The {min(len(odd), FEW)} with most spread", shown[:FEW])
    if len(shown) > FEW:
        rest = _doubtful_table("Timings to doubt", shown[:MOST_DOUBTFUL])
        yield Folded(f"{min(len(odd), MOST_DOUBTFUL):,} of {len(odd):,} timings", (rest,))


def _doubtful_table(caption: str, shown: Sequence[tuple[Point, str, Timing]]) -> Table:
    columns: Columns = (
        "point",
        "of it",
        number("median", seconds),
        number("spread", percent, "scaled median absolute deviation over the median"),
        number("± 95 %", percent, "half the confidence interval of the median, over the median"),
        number("repeats"),
        "flags",
    )
    rows = (
        (
            *(described(point), name, one.seconds, one.spread_fraction),
            *(one.half_width_fraction, one.repeats, ", ".join(one.flags)),
        )
        for point, name, one in shown
    )
    return table(caption, columns, rows)


def _machine(profile: Profile) -> Iterator[Block]:
    if profile.hosts:
        yield _hosts(profile.hosts)
    details = [
        (host.name, what, written)
        for host in profile.hosts
        for what, lines in (
            ("network", host.nics),
            ("topology", host.topology),
            ("clocks", host.clocks),
        )
        for written in lines
    ]
    if details:
        yield table("What the nodes report of themselves", ("node", "of", "says"), details)
    origins = [(one.source, one.created, one.command) for one in profile.origins]
    yield table("Where the numbers come from", ("who", "when", "command"), origins)
    counts = Counter(point.kind for point in profile.points)
    yield table("Points by kind", ("kind", number("points")), counts.most_common())


def _hosts(hosts: Sequence[Host]) -> Table:
    columns: Columns = (
        *("node", number("GPUs"), "GPU", number("GiB a GPU", gib)),
        *("processor", number("cores"), number("GiB host", gib), "driver"),
    )
    rows = (
        (
            *(one.name, one.num_gpus, ", ".join(dict.fromkeys(one.gpu_names)) or None),
            *(one.gpu_memory_bytes, one.cpu, one.num_cores, one.memory_bytes, one.driver),
        )
        for one in hosts
    )
    return table("Nodes", columns, rows)
