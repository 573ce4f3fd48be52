"""A call as the command that answers it: values are typed, and its answer is heard."""

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import yaml
from rich.console import RenderableType

from trainplan import planner
from trainplan.cli.processes import START
from trainplan.cli.serve import PLAN, filed, invoke, option_words
from trainplan.cli.terminal import LISTENER, named, one_line
from trainplan.costmodel.axes import AXES, NAMED_AXES
from trainplan.costmodel.base import PlanError, SpecError
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.profiles import Profile
from trainplan.costmodel.spec import Spec

OPTION = re.compile(r"(`[^`]*`)|--([a-z][a-z-]*[a-z])")
"""What is typed, or the name of an option."""
EXAMPLE = re.compile(r", such as in `.*`(?= \(see)")
"""A command line to copy."""
SHARED = ("search", "explain", "sweep")
"""Commands whose work several processes share, where this one may be forked."""
PAIRED = ("fix", "exclude", "option", "set", "vary")
"""Options of NAME=VALUE that may be given several times."""
PERCENTAGES = ("slack",)
"""Shares in percent, of which a number is the fraction."""
JOINS = {"vary": ","}
"""Between values of one name, by option; `+` of others."""


@dataclass(slots=True)
class Heard:
    """What a command answers."""

    document: Mapping[str, object] | None = None
    page: Sequence[RenderableType] = ()
    found: Any = None

    def answered(
        self, document: Mapping[str, object], page: Iterable[RenderableType], found: object
    ) -> None:
        """Keep it."""
        self.document, self.page, self.found = document, tuple(page), found

    def progressed(self, done: float, bound_s: float, best_s: float) -> bool:
        """Stderr has it, as for who types."""
        return False


def ask(
    name: str, given: Mapping[str, object] | Sequence[str], options: Mapping[str, Any]
) -> Heard:
    """What the command `name` answers.

    `given` is what is typed without the name of an option, by what it is; `options` are keywords.

    Raises:
        PlanError: As the command, in its words.
        KeyboardInterrupt: Control-C, before there was an answer.
    """
    heard = Heard()
    if name in SHARED and (START != "fork" or threading.active_count() > 1):
        options = {"workers": 1, **options}
    with TemporaryDirectory(prefix="trainplan-") as made:
        folder, before = Path(made).resolve(), LISTENER.set(heard)
        try:
            _refuse_unknown(name, options)
            words = [name, *(["--json"] if name == "export" else []), *_words(options, folder)]
            if isinstance(given, Mapping):
                given = [str(_typed(key, one, folder)) for key, one in given.items()]
            invoke([*words, "--", *given])
        except click.exceptions.Exit:  # nothing fits, or control-C
            if heard.document is None:
                raise KeyboardInterrupt from None
        except click.ClickException as error:
            raise SpecError(_without(folder, one_line(error))) from None
        except PlanError as error:
            error.args = (_without(folder, one_line(error)),)
            raise error.with_traceback(None) from None
        finally:
            LISTENER.reset(before)
    return heard


def _refuse_unknown(name: str, options: Iterable[str]) -> None:
    """Also of those that nothing is typed of.

    Raises:
        click.NoSuchOption: The command has no such option.
    """
    root: Any = named(PLAN)
    context = click.Context(root.get_command(None, name), info_name=f"plan {name}")
    known = {one for each in context.command.params for one in each.opts}
    for option in (f"--{key.removesuffix('_').replace('_', '-')}" for key in options):
        if option not in known:
            raise click.NoSuchOption(option, ctx=context)


def _words(options: Mapping[str, Any], folder: Path) -> Iterator[str]:
    for key, value in options.items():
        if value is not None:
            yield from option_words(key.removesuffix("_"), _typed(key, value, folder))


def _typed(key: str, value: object, folder: Path) -> object:
    """A value as its option takes it: a text, several, or the path of a document."""
    if key in PERCENTAGES and isinstance(value, float | int) and not isinstance(value, bool):
        return f"{100 * value:.9f}".rstrip("0").rstrip(".") + "%"
    value = _plain(value)
    if isinstance(value, list | tuple):
        return [_typed(f"{key}-{place}", one, folder) for place, one in enumerate(value, 1)]
    if not isinstance(value, Mapping):
        return value
    if key in ("layout", "baseline", *PAIRED):
        pairs = [f"{name}={_text(one, JOINS.get(key, '+'))}" for name, one in value.items()]
        return pairs if key in PAIRED else ",".join(pairs)
    try:
        return filed(key, value, folder)
    except (TypeError, ValueError, yaml.YAMLError) as error:
        raise SpecError(f"{key}: {error}: give plain values, as JSON has them") from None


def _plain(value: object) -> object:
    """A value of ours as its document or text, and a whole number without a point."""
    if isinstance(value, planner.Plan):
        return planner.plan_json(value)
    if isinstance(value, planner.Candidate):
        value = value.layout
    if isinstance(value, Layout):
        axes = [axis for axis in AXES if axis in NAMED_AXES or not axis.is_off(value)]
        return ",".join(f"{axis.option}={axis.text(value)}" for axis in axes)
    if isinstance(value, Profile):
        return value.document()
    if isinstance(value, Spec):
        return value.model_dump(mode="json", exclude_defaults=True)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(value: object, sign: str) -> str:
    """Of a pair: several are joined, a switch is small."""
    many = sign.join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return many.lower() if isinstance(value, bool) else many


def _without(folder: Path, text: str) -> str:
    """A refusal with documents by their names alone, and options as keywords."""
    text = EXAMPLE.sub("", text.replace(f"{folder}/", ""))
    return OPTION.sub(lambda found: found[1] or found[2].replace("-", "_"), text)
