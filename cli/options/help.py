"""A help page, and who answers when its command line is read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import click

from trainplan.cli.terminal.lazily import call

Stated = Callable[..., None]
"""A function whose name and text are those of a command; it has no body."""
Decorator = Callable[[Stated], Stated]


def page(
    name: str, *example: str, group: click.Group | None = None
) -> Callable[[Stated], click.Command]:
    """The command `name`, with an example to copy at the end of its help page.

    The function of `cli.commands` with the same module and name answers; it is imported then.
    """

    def decorate(stated: Stated) -> click.Command:
        groups: Sequence[_Group] = getattr(stated, GROUPS, ())

        @functools.wraps(stated)
        def answer(**values: object) -> None:
            for one, build, taken in groups:
                values[one] = call(build, **{key: values.pop(key) for key in taken})
            call(answering(stated, stated.__name__), **values)

        made = group.command if group else click.command
        return made(name, epilog=epilog(*example))(answer)

    return decorate


def epilog(*lines: str) -> str:
    """The end of a help page: a command to copy."""
    return "\b\n" + "\n".join(("Example:", *(f"  {line}" for line in lines)))


def answering(stated: Stated, name: str) -> str:
    """`package.module:name` of what answers in the stead of a page's function."""
    return f"{stated.__module__.replace('.usage.', '.commands.')}:{name}"


GROUPS = "gathered_options"
_Group = tuple[str, str, tuple[str, ...]]
"""Under which name, made by what, of the values of which options."""


def gathered(name: str, build: str, options: Sequence[Decorator]) -> Decorator:
    """Add `options` to a command and pass it what `build` makes of them under one name.

    `build` is `package.module:name`, or a name beside the function that answers; it is imported
    when the command answers.
    """
    bare = click.command()(_with(lambda **_: None, options))
    taken = tuple(str(option.name) for option in bare.params)

    def decorate(stated: Stated) -> Stated:
        made_by = build if ":" in build else answering(stated, build)
        setattr(stated, GROUPS, [(name, made_by, taken), *getattr(stated, GROUPS, ())])
        return _with(stated, options)

    return decorate


def _with(stated: Stated, options: Sequence[Decorator]) -> Stated:
    for option in reversed(options):
        stated = option(stated)
    return stated
