"""What was run of a plan, as text and as JSON lines."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from trainplan.cli.blocks import Part, number, section, table
from trainplan.cli.documents import VerifyEnded, differences, equal, short_layout
from trainplan.planner.verification import Combinations, Ran

SCHEMA = "trainplan/verify/v1"
FILE_HEADS = ("loss", "grad norm", "seconds")
HEADS = ("loss", "grad norm", "parameters", "bytes sent", "bytes kept", "seconds")


def verify_page(
    found: Sequence[Ran],
    request: Combinations,
    changed: str,
    files: Sequence[Ran] = (),
    files_not_started: Sequence[str] = (),
) -> Iterator[Part]:
    """The answer, a row for each combination, what differs, what was not run.

    `changed` has the numbers of the file that are others, `files` the exported ones that started.
    """
    verdict = VerifyEnded.sentence(found, request.not_run, changed, files)
    yield Text(verdict, style="bold green" if equal((*found, *files)) else "bold red")
    yield table("", ("layout", *map(number, HEADS)), map(_row, found))
    yield "\n".join(_legend(found))
    if files:
        yield table("", ("exported files", *map(number, FILE_HEADS)), map(_file_row, files))
    wrong = [line for one in found for line in differences(one)]
    wrong += [f"files of {line}" for one in files for line in differences(one)]
    if wrong:
        yield section("Differs", *wrong)
    ended = [f"{short_layout(one.combination.layout)}: {one.failure}" for one in found if one.ended]
    if not_run := [*ended, *request.not_run]:
        yield section("Not run", *not_run)
    if files_not_started:
        yield section("Exported files not started", *files_not_started)
    if request.simplified:
        yield section("Run in a plainer form", *request.simplified)
    if changed:
        yield section("The file", changed)


def _legend(found: Sequence[Ran]) -> Iterator[str]:
    tolerance = max((one.found.tolerance for one in found if one.found), default=None)
    if tolerance is not None:
        yield (
            f"Losses and gradient norms: relative difference from one process; {tolerance:.0e} is "
            "what the order of fp32 sums explains."
        )
        yield "The rest: what every rank has, sends in a step and keeps, against the cost model."


def _row(one: Ran) -> tuple[str, ...]:
    name = short_layout(one.combination.layout)
    if one.found is None:
        return (name, *("-",) * 5, "-")
    found = one.found
    return (
        name,
        f"{found.loss_difference:.0e}",
        f"{found.grad_norm_difference:.0e}",
        _exact(found.wrong_parameters),
        _exact(found.wrong_sent),
        "-" if found.saved_difference is None else f"{100 * found.saved_difference:.2f} %",
        f"{one.seconds or 0:.1f}",
    )


def _file_row(one: Ran) -> tuple[str, ...]:
    name, *_, seconds = row = _row(one)
    return name, *row[1 : len(FILE_HEADS)], seconds


def _exact(wrong: Sequence[str]) -> str:
    return "differ" if wrong else "exact"
