"""A help page, and who answers when its command line is read."""

from __future__ import annotations

import functools
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence

import click

from trainplan.cli.options.headings import HEADING_OF, HEADINGS, LONGEST_LIST, OUTPUT
from trainplan.cli.terminal import load, named

Stated = Callable[..., None]
"""A function that answers a command, with its help page for a docstring."""
Decorator = Callable[[Stated], Stated]


Given = Mapping[str, object]
"""What is typed of a command's options and arguments, by name."""
Needs = Callable[[Given, bool], Iterator[tuple[str, str]]]
"""Of what is typed, and whether a required option is missing: what else is, each with a reason."""
LEFT_COLUMN = 22
"""Columns for an option and what it takes."""
WIDEST = 100
"""Columns of a help page where the terminal has them."""
LONGEST_EXAMPLE = 300
"""Characters of a command line that a message completes."""
EXAMPLES = {
    "--model": "llama3-8b",
    "--cluster": "8x8:h100",
    "--global-batch-size": "128",
    "--seq-length": "8192",
    "--layout": "tp=8",
    "--pareto": "time,memory",
    "--vary": "gpus=64..512",
    "--gpu": "h100-sxm",
    "--output": "profile.json",
    "PLAN": "plan.json",
    "FIRST": "before.json",
    "SECOND": "after.json",
    "FORMAT": "nccl-tests",
    "FILES": "all_reduce.txt",
    "FILE | -- COMMAND...": "train.sh",
    "RUNS.jsonl...": "runs.jsonl",
    "SHELL": "bash",
}
"""A value of what a command needs, for the example that would work."""


class Command(click.Command):
    """A command that names all it lacks at once, with an example that has it."""

    needs: Needs | None = None

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Options and their texts below the question of each; a short list has one heading."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        headings = [*HEADINGS] if len(options) > LONGEST_LIST else ["Options"]
        rows: dict[str, list[tuple[str, str]]] = {heading: [] for heading in headings}
        for one in options:
            heading = HEADING_OF.get(one.name or "", OUTPUT)
            rows[heading if heading in rows else headings[-1]] += filter(
                None, [one.get_help_record(ctx)]
            )
        yield from ((heading, found) for heading, found in rows.items() if found)

    def lists(self) -> Iterator[tuple[str, str]]:
        """Options that take one of many names, and those: the end of the help page."""
        lists = ((one.opts[0], getattr(one, "listed", ())) for one in self.params)
        yield from ((f"Names of {name}", " ".join(listed)) for name, listed in lists if listed)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, by heading; lists of names take the width of the page."""
        for heading, rows in self.sections(ctx):
            with formatter.section(heading):
                wide = [(f"{name:<{LEFT_COLUMN}}", text) for name, text in rows]
                formatter.write_dl(wide, col_max=LEFT_COLUMN)
        for heading, names in self.lists():
            with formatter.section(heading):
                lines = textwrap.fill(names, formatter.width - 2, break_on_hyphens=False)
                formatter.write(f"{textwrap.indent(lines, '  ')}\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does."""
        typed = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.MissingParameter:
            self._refuse_missing(ctx, typed)
            raise
        except click.BadOptionUsage as error:
            raise self._without_value(ctx, error) from error
        if self.needs and not ctx.resilient_parsing:
            self._refuse_missing(ctx, typed)
        return rest

    def _without_value(self, ctx: click.Context, error: click.BadOptionUsage) -> click.UsageError:
        """An option at the end of the line, with what it takes."""
        name = error.option_name
        option = next((one for one in self.params if name in one.opts), None)
        if option is None or "requires an argument" not in error.message:
            return error
        example = EXAMPLES.get(name, "")
        such = f", such as `{name} {example}`" if example else ""
        return click.UsageError(f"{name} needs a value, {option.make_metavar(ctx)}{such}", ctx)

    def _refuse_missing(self, ctx: click.Context, typed: list[str]) -> None:
        """Name what lacks.

        Raises:
            click.UsageError: Something does.
        """
        values, _, _ = self.make_parser(ctx).parse_args(args=list(typed))
        given = {name: value for name, value in values.items() if _is_given(value)}
        lacking = [
            (_name(one), "") for one in self.params if one.required and one.name not in given
        ]
        lacking += self.needs(given, bool(lacking)) if self.needs else ()
        if not lacking:
            return
        order = [_name(one) for one in self.params]
        lacking.sort(key=lambda one: order.index(one[0]))
        names = [f"{name} ({why})" if why else name for name, why in lacking]
        listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        example = self._completed(ctx, typed, [name for name, _ in lacking])
        raise click.UsageError(f"missing {listed}, such as in `{example}`", ctx)

    def _completed(self, ctx: click.Context, typed: list[str], names: list[str]) -> str:
        """The command line with a value for each of these, or those alone if it is long."""
        words = typed if len(shlex.join(typed)) < LONGEST_EXAMPLE else []
        for name in names:
            option = (name,) if name.startswith("--") else ()
            words = [*words, *option, EXAMPLES.get(name, name)]
        return f"{ctx.command_path} {shlex.join(words)}"


def _name(one: click.Parameter) -> str:
    return one.opts[0] if isinstance(one, click.Option) else (one.metavar or str(one.name).upper())


def _is_given(value: object) -> bool:
    """Click has a value of its own for what was not typed."""
    return isinstance(value, str | int | float | list | tuple) and value != ()


def page(
    name: str, *example: str, group: click.Group | None = None
) -> Callable[[Stated], click.Command]:
    """The command `name`, with an example to copy at the end of its help page, and all defaults.

    What its module imports in `imported_on_answer` is there when the decorated function answers.
    """

    def decorate(stated: Stated) -> click.Command:
        groups: Sequence[_Group] = getattr(stated, GROUPS, ())

        @functools.wraps(stated)
        def answer(**values: object) -> None:
            load(sys.modules[stated.__module__])
            for one, build, taken in groups:
                values[one] = named(build)(**{key: values.pop(key) for key in taken})
            stated(**values)

        shown = {"show_default": True, "max_content_width": WIDEST}
        command = click.command(name, cls=Command, epilog=epilog(*example), context_settings=shown)(
            answer
        )
        command.needs = getattr(stated, NEEDS, None)
        if group:
            group.add_command(command)
        return command

    return decorate


def epilog(*lines: str) -> str:
    """The end of a help page: a command to copy."""
    return "\b\n" + "\n".join(("Example:", *(f"  {line}" for line in lines)))


GROUPS, NEEDS = "gathered_options", "needs"
_Group = tuple[str, str, tuple[str, ...]]
"""Under which name, made by what, of the values of which options."""


def gathered(
    name: str, build: str, options: Sequence[Decorator], needs: Needs | None = None
) -> Decorator:
    """Add `options` to a command and pass it what `build` makes of them under one name.

    `build` is `package.module:name`, or a name of the command's own module; it is imported when the
    command answers. `needs` lists what else must be typed.
    """
    bare = click.command()(_with(lambda **_: None, options))
    taken = tuple(str(option.name) for option in bare.params)

    def decorate(stated: Stated) -> Stated:
        made_by = build if ":" in build else f"{stated.__module__}:{build}"
        setattr(stated, GROUPS, [(name, made_by, taken), *getattr(stated, GROUPS, ())])
        if needs:
            setattr(stated, NEEDS, needs)
        return _with(stated, options)

    return decorate


def _with(stated: Stated, options: Sequence[Decorator]) -> Stated:
    for option in reversed(options):
        stated = option(stated)
    return stated
