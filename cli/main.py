"""Entry point of `plan`: picks the command, turns every ending into an exit code.

Exit codes: 0 an answer, 2 nothing fits or bad input, 3 `plan verify` found a difference, 1 our bug,
130 Ctrl-C. A reader that closes the pipe early (`plan ... | head`) has seen enough: that is 0.
"""

import errno
import gc
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

from trainplan.cli import commands
from trainplan.cli.commands import (
    COMMANDS,
    COMPLETE,
    QUESTIONS,
    is_of_plugin,
    plugged,
    plugged_command,
    say_warnings,
)
from trainplan.cli.terminal import OWN_PROCESS, bug_line, one_line
from trainplan.costmodel.base import PlanError, unknown_name

ANSWER, BUG, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
NOT_WRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF)
DEBUG = "PLAN_DEBUG"
"""Environment variable that shows the traceback of a bug."""
COLLECTED_EVERY = 250_000
"""Objects made before Python looks for cycles among them; a command lives for seconds. Source:
measured; a search takes a tenth less time than at Python's 700, and a small one makes 160,000."""

START = """\
plan finds the fastest parallel layout for training a large model, proves it
and writes the launch script. Three to try:

  # the fastest layout of a job
  plan search --model llama3-8b --cluster 2x8:h100-sxm --global-batch-size 128 \\
    --seq-length 8192

  # how many GPUs, 64 at most, a run of 200 B tokens needs to end in two weeks
  plan search --objective gpus --tokens 200B --deadline 2w \\
    --model llama3-8b --cluster 8x8:h100-sxm --global-batch-size 128 \\
    --seq-length 8192

  # what a launch that you have costs, and which edits make it faster
  plan check -- torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --bf16 \\
    --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
    --seq-length 8192 --max-position-embeddings 8192 --micro-batch-size 1 \\
    --global-batch-size 128 --pipeline-model-parallel-size 2 \\
    --use-distributed-optimizer

`plan --help` lists all commands, `plan catalog` what is known by name.
"""


class LazyGroup(click.Group):
    """A group that imports a command when it is typed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the registry."""
        return [*COMMANDS, *plugged()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import its module."""
        if cmd_name not in COMMANDS:
            return self._of_plugin(ctx, cmd_name)
        module = f"{commands.__name__}.{COMMANDS[cmd_name].module}"
        command = importlib.import_module(module).command
        assert isinstance(command, click.Command)
        return command

    def _of_plugin(self, ctx: click.Context, name: str) -> click.Command | None:
        """A command of a plug-in; a shell that completes does not learn that it does not load."""
        try:
            return plugged_command(name) if name in plugged() else None
        except PlanError:
            if ctx.resilient_parsing:
                return None
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest names in the error."""
        if args[0] not in COMMANDS and args[0] not in plugged() and not args[0].startswith("-"):
            known = self.list_commands(ctx)
            raise unknown_name("command", args[0], known, f"known: {', '.join(known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The summaries of the registry: nothing is imported."""
        for question, entries in QUESTIONS.items():
            with formatter.section(question):
                formatter.write_dl([(name, one.summary) for name, one in entries.items()])
        if plugged():
            with formatter.section("Commands of plug-ins"):
                formatter.write_dl(
                    [
                        (name, f"{one.value.summary} ({one.origin.package})")
                        for name, one in plugged().items()
                    ]
                )


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog="Exit codes: 0 answer, 2 nothing fits or bad input, 3 `plan verify` found a difference, "
    "1 a bug of ours, 130 Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="trainplan", prog_name="plan")
@click.pass_context
def plan(context: click.Context) -> None:
    """Find the fastest parallel layout for training a large model, and prove it."""
    if context.invoked_subcommand is None:
        click.echo(START, nl=False)


class ControlC:
    """What SIGINT does, and whether it has come.

    Compiled code may turn the exception into one of its own: pybind11 makes a `TypeError` of it
    while it reads an argument.
    """

    def __init__(self) -> None:
        self.pressed = False

    def __call__(self, number: int, frame: FrameType | None) -> NoReturn:
        """Remember it and end as Python does."""
        self.pressed = True
        raise KeyboardInterrupt


def main() -> NoReturn:
    """Run `plan` on the command line of this process."""
    OWN_PROCESS.set(True)
    gc.set_threshold(COLLECTED_EVERY)
    say_warnings()
    control_c = ControlC()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, control_c)
    if COMPLETE in os.environ:
        from trainplan.cli.terminal import shell_complete  # noqa: PLC0415 (for shells)

        sys.exit(shell_complete(plan, {}, "plan", COMPLETE, os.environ[COMPLETE]))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a terminal without our characters shows others, not an error
            stream.reconfigure(errors="replace")
    ending = run(sys.argv[1:], control_c)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an answer stands while Python shuts down
    gc.freeze()  # the system takes all back: no cycles are looked for, 0.15 s of a small search
    sys.exit(ending)


def run(arguments: Sequence[str], control_c: ControlC | None = None) -> int:
    """Run `plan` and return its exit code."""
    try:
        with plan.make_context("plan", list(arguments)) as context:
            plan.invoke(context)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except (click.ClickException, PlanError) as error:
        return _misused(error)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except OSError as error:
        return _unwritten(error)
    except Exception as error:  # noqa: BLE001 (the last line of defence: a bug is said, not dumped)
        return INTERRUPTED if control_c and control_c.pressed else _fail(error)
    return ANSWER


def _fail(error: Exception) -> int:
    return BUG if is_of_plugin(error, DEBUG) else _confess(error)


def refuse(message: str) -> int:
    """Print what is wrong in one line."""
    click.echo(f"plan: error: {message}", err=True)
    return BAD_INPUT


def _misused(error: click.ClickException | PlanError) -> int:
    """Print what is wrong in one line; of a group alone show the help, as click does."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return BAD_INPUT
    return refuse(one_line(error))


def _confess(error: Exception) -> int:
    if os.environ.get(DEBUG):
        raise error
    click.echo(f"plan: error: {bug_line(error)} ({DEBUG}=1 shows the traceback)", err=True)
    return BUG


def _unwritten(error: OSError) -> int:
    """Files are read and written in `files.disk`, so this is a terminal, a pipe or a full disk."""
    if error.errno not in NOT_WRITABLE:
        return _confess(error)
    _abandon_stdout()
    if isinstance(error, BrokenPipeError):
        return ANSWER
    return refuse(f"cannot write to standard output: {error.strerror}")


def _abandon_stdout() -> None:
    """Python flushes stdout once more at exit: let that go nowhere."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
