"""A runtime that is another one with changes: what it adds, renames and lacks, and no more.

Its launches are written as its base writes them and then translated option by option, and are read
by translating them back and asking the base.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.planner.launch import Argument, LaunchConfig, option
from trainplan.planner.runtimes.exporter import Exporter
from trainplan.planner.runtimes.reading import Reader, Reading, Request
from trainplan.planner.shell import Launch, Problem, Word


@dataclass(frozen=True, slots=True)
class Own:
    """An option that the base does not have."""

    flag: str
    values: Callable[[Job, Layout], Sequence[str] | None]
    """What is written behind it; none for a switch, null: it is left out."""
    base: Callable[[Sequence[str]], Sequence[str]] = lambda values: ()
    """Words of the base that mean what these values do."""


@dataclass(frozen=True, slots=True)
class Fork:
    """What a runtime changes of the options of its base."""

    runtime: str
    version: str
    """Commit whose options these are."""
    exporter: Exporter
    """Of the base."""
    reader: Reader
    """Of the base."""
    own: tuple[Own, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Its name of an option, by that of the base."""
    gone: frozenset[str] = frozenset()
    """Options of the base that it lacks: what needs one is refused."""
    by_itself: frozenset[str] = frozenset()
    """Options of the base that it lacks and needs not, or says by one of its own."""

    @property
    def flags(self) -> frozenset[str]:
        """Every option of it."""
        theirs = self.exporter.flags - self.gone - self.by_itself - self.renamed.keys()
        return theirs | {*self.renamed.values(), *(one.flag for one in self.own)}

    def export(self, job: Job, layout: Layout) -> LaunchConfig:
        """The launch of one layout.

        Raises:
            UnsupportedError: It lacks an option that the layout needs.
        """
        base = self.exporter.export(job, layout)
        kept = (one for one in base.arguments if one.flag not in self.by_itself)
        own = (
            option("layout", one.flag, *values)
            for one in self.own
            if (values := one.values(job, layout)) is not None
        )
        return replace(
            base,
            runtime=self.runtime,
            runtime_version=self.version,
            checked="",
            arguments=(*(self._of_fork(one) for one in kept), *own),
        )

    def _of_fork(self, argument: Argument) -> Argument:
        if argument.flag in self.gone:
            raise refusal(self.runtime, argument, self.exporter.runtime)
        return replace(argument, flag=self.renamed.get(argument.flag, argument.flag))

    def recognises(self, launch: Launch) -> bool:
        """Is it a launch of the base with an option of the fork's own?"""
        words = {word.text.partition("=")[0] for word in launch.arguments}
        return self.reader.recognises(launch) and any(one.flag in words for one in self.own)

    def read(self, launch: Launch, request: Request) -> Reading:
        """The job and the layout of a launch, as the base reads what it means there."""
        names = {new: old for old, new in self.renamed.items()}
        own = {one.flag: one for one in self.own}
        flags, words = self.flags, list[Word]()
        for flag, group in groups_of(launch.arguments):
            if flag in own:
                texts = own[flag].base([word.text for word in group[1:]])
                words += [replace(group[0], text=text) for text in texts]
            elif flag in flags:
                words += (
                    replace(group[0], text=group[0].text.replace(flag, names.get(flag, flag))),
                    *group[1:],
                )
        unknown = unknown_options(launch.arguments, flags, self.runtime, strict=request.strict)
        reading = self.reader.read(replace(launch, arguments=tuple(words)), request)
        job = reading.job and reading.job.model_copy(update={"runtime": self.runtime})
        return replace(
            reading,
            runtime=self.runtime,
            runtime_version=self.version,
            job=job,
            fields=tuple(replace(one, written=self._named(one.written)) for one in reading.fields),
            problems=(
                *unknown,
                *(replace(one, says=self._named(one.says)) for one in reading.problems),
            ),
            own_name=lambda name: self.renamed.get(name, name),
        )

    def _named(self, text: str) -> str:
        """A sentence of the base with the names of the fork."""
        for old, new in self.renamed.items():
            text = re.sub(rf"(?<![\w-]){re.escape(old)}(?![\w-])", new, text)
        return text

    def as_exporter(self) -> Exporter:
        """What writes it."""
        return replace(
            self.exporter, runtime=self.runtime, export=self.export, fork_flags=self.flags
        )

    def as_reader(self) -> Reader:
        """What reads it; it is tried before the base."""
        return Reader(self.runtime, self.recognises, self.read)


def refusal(runtime: str, argument: Argument, base: str) -> UnsupportedError:
    """That a fork lacks an option which the plan needs."""
    text = " ".join((argument.flag, *map(str, argument.values)))
    return UnsupportedError(
        f"{runtime} has no {text}: leave out what needs it, or export to {base}"
    )


def groups_of(words: Sequence[Word]) -> Iterator[tuple[str, tuple[Word, ...]]]:
    """Each option with its values, by its name."""
    group: list[Word] = []
    for word in words:
        if word.text.startswith("--") and group:
            yield group[0].text.partition("=")[0], tuple(group)
            group = []
        group.append(word)
    if group:
        yield group[0].text.partition("=")[0], tuple(group)


def unknown_options(
    words: Sequence[Word], known: Collection[str], who: str, *, strict: bool
) -> tuple[Problem, ...]:
    """Options that the fork lacks: of another Megatron-LM, or of another commit of the fork."""
    unknown = {flag: group[0].place for flag, group in groups_of(words) if flag not in known}
    if strict or not unknown:
        return tuple(
            Problem(
                "unknown_flag",
                "illegal",
                f"{who} has no {flag[:80]}, which is of another Megatron-LM: take it out",
                place,
            )
            for flag, place in unknown.items()
        )
    names = ", ".join(flag[:80] for flag in list(unknown)[:SPELLED])
    more = f" and {len(unknown) - SPELLED} more" if len(unknown) > SPELLED else ""
    says = f"{names}{more}: not of {who} at this commit; the price is without"
    return (Problem("unknown_flag", "unread", says, next(iter(unknown.values()))),)


SPELLED = 12
"""Options that a sentence lists."""
