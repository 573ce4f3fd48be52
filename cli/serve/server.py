"""The planner as a server of the Model Context Protocol, over stdin and stdout."""

import json
import signal
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, cast

import anyio
import mcp_types as protocol
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from trainplan.cli.serve.calls import GRACE_S, Calls, Kept, key_of
from trainplan.cli.serve.fields import New, Request
from trainplan.cli.serve.lines import Id, Lines
from trainplan.cli.serve.shown import shown
from trainplan.cli.serve.tools import TOOLS, Entry
from trainplan.cli.serve.work import Answer, Call, Limits, Progress
from trainplan.cli.terminal import bug_line, progress_text
from trainplan.costmodel.base import PlanError, SpecError, unknown_name
from trainplan.costmodel.spec import first_complaint

NAME = "trainplan"
INSTRUCTIONS = (
    "Plans parallel layouts (tensor, pipeline, context, data and expert parallelism) for training "
    "large models. Begin with `search`; call `explain` or `why_not` on the plan it keeps, and "
    "`export` for its launch files. Answers are predictions of a cost model, proved against that "
    "model: nothing is run. Seconds end in _s, bytes in _bytes. With `parts`, keys of its "
    "document, an answer of any tool is short; `schema` lists every field that a tool takes."
)
MESSAGE_FACTOR = 4
"""A message may have so many times the bytes of what it sends: JSON in JSON is escaped."""
ENDED_BY = 128
"""Exit code of who ended by a signal, less its number, as shells count."""
MOST_DONE, LEAST_RISE = 0.99, 0.01
"""Of all that is left. Progress has to rise with every note of it, and only the answer is its end.
Source: MCP specification 2025-11-25, basic/utilities/progress."""


class Planner:
    """What the server answers."""

    def __init__(
        self,
        limits: Limits,
        *,
        readable: tuple[Path, ...],
        writable: Path | None = None,
        workers: int | None,
    ) -> None:
        self._limits, self._workers = limits, workers
        self._readable, self._writable = readable, writable
        self._calls, self._kept = Calls(limits.calls), Kept()

    async def list_tools(
        self, context: ServerRequestContext[Any], page: protocol.PaginatedRequestParams | None
    ) -> protocol.ListToolsResult:
        """All tools with the schemas of their requests."""
        return protocol.ListToolsResult(tools=[_described(name) for name in TOOLS])

    async def call_tool(
        self, context: ServerRequestContext[Any], call: protocol.CallToolRequestParams
    ) -> protocol.CallToolResult:
        """The answer of a command, or what is wrong as the command prints it.

        Raises:
            MCPError: There is no such tool.
        """
        if call.name not in TOOLS:
            error = unknown_name("tool", call.name[:60], TOOLS, f"known: {', '.join(TOOLS)}")
            raise MCPError(code=protocol.INVALID_PARAMS, message=str(error))
        try:
            return await self._answer(TOOLS[call.name], call.arguments or {}, context)
        except PlanError as error:
            return _refusal(str(error))
        except Exception as error:  # noqa: BLE001 (a bug is said, and the server goes on)
            return _refusal(bug_line(error))

    async def _answer(
        self, tool: Entry, arguments: Mapping[str, object], context: ServerRequestContext[Any]
    ) -> protocol.CallToolResult:
        _require_small(arguments, self._limits.input_bytes)
        request = _validated(tool.request, arguments)
        key = key_of(tool.command, arguments)
        known = None if request.stated(New) else await self._kept.find(key)
        if known is None:
            limit_s = self._limit_of(request)
            call = self._requested(tool, request, limit_s)
            grace_s = GRACE_S if tool.limited else 0.0
            answer = await self._calls.run(call, limit_s, _Notes(context), grace_s)
            if answer.error:
                return _refusal(answer.error)
            known = answer, self._kept.keep(key, answer)
        return self._shown(*known, request)

    def _requested(self, tool: Entry, request: Request, limit_s: float) -> Call:
        extra = [f"--time-limit={limit_s:g}"] if tool.limited else []
        if tool.shared and self._workers:
            extra.append(f"--workers={self._workers}")
        where = Path(), self._readable, self._writable
        return Call(tool.command, request, tuple(extra), dict(self._kept.plans), *where)

    def _limit_of(self, request: Request) -> float:
        """Seconds that a call may take.

        Raises:
            SpecError: More are requested than the server allows.
        """
        stated = getattr(request, "time_limit", None)
        if stated is None:
            return self._limits.time_limit_s
        if stated > self._limits.most_time_s:
            raise SpecError(
                f"time_limit {stated:g}: at most {self._limits.most_time_s:g} s are allowed here"
            )
        return float(stated)

    def _shown(self, answer: Answer, plan: str, request: Request) -> protocol.CallToolResult:
        document = json.loads(answer.document)
        found = shown(document, request.parts, self._limits.output_bytes)
        notes = list(answer.remarks)
        if plan:
            notes.append(f"Kept as {plan}: tools that need a plan take that name.")
        if found.notes:
            notes.append(
                f"Cut to {self._limits.output_bytes:,} bytes ({'; '.join(found.notes)}): send the "
                "same with `parts` for what is missing; it is not searched again."
            )
        text = "\n\n".join(filter(None, (answer.lines, "\n".join(notes))))
        return protocol.CallToolResult(
            content=[protocol.TextContent(text=text)], structured_content=found.document
        )


class _Notes:
    """Notes of progress to the client of a call, each further than the one before."""

    def __init__(self, context: ServerRequestContext[Any]) -> None:
        self._context, self._last = context, 0.0

    async def __call__(self, progress: Progress) -> None:
        rise = LEAST_RISE * (1 - self._last)
        self._last = max(min(progress.done, MOST_DONE), self._last + rise)
        await self._context.session.report_progress(
            self._last, 1.0, progress_text(progress.done, progress.bound_s, progress.best_s)
        )


def _described(name: str) -> protocol.Tool:
    tool = TOOLS[name]
    keeps = not tool.request.marked(New)
    return protocol.Tool(
        name=name,
        description=tool.says,
        input_schema=tool.request.brief(),
        annotations=protocol.ToolAnnotations(
            read_only_hint=keeps,
            destructive_hint=False,
            idempotent_hint=keeps,
            open_world_hint=False,
        ),
    )


def _require_small(arguments: Mapping[str, object], most_bytes: int) -> None:
    """Refuse what is too large, or no JSON.

    Raises:
        SpecError: It is.
    """
    try:
        size = len(json.dumps(arguments).encode())
    except (ValueError, RecursionError):
        raise SpecError("a number of too many digits, or nested too deeply: shorten it") from None
    if size > most_bytes:
        raise SpecError(
            f"{size:,} bytes were sent: at most {most_bytes:,} are taken here; give names of the "
            "catalog, or the config.json, not the weights"
        )


def _validated(kind: type[Request], arguments: Mapping[str, object]) -> Request:
    """The arguments as a request.

    Raises:
        PlanError: A field is unknown, missing or of the wrong kind.
    """
    known = kind.model_fields
    for name in arguments:
        if name in kind.INTENDED:
            raise SpecError(f"unknown argument {name!r}: {kind.INTENDED[name]}")
        if name not in known:
            raise unknown_name("argument", name[:60], known, f"known: {', '.join(known)}")
    try:
        request = kind.model_validate(arguments)
    except ValidationError as error:
        first = first_complaint(error)
    else:
        _refuse_switches(request, arguments)
        return request
    name = str(first.place[0])
    of_many = first.place[1:2] == ("str",)
    reason = "must be a name, or a document as an object" if of_many else first.reason
    raise SpecError(f"argument {name!r}: {reason}")


def _refuse_switches(request: Request, arguments: Mapping[str, object]) -> None:
    """Refuse true and false as numbers, which they pass for.

    Raises:
        SpecError: One is given.
    """
    for name, value in arguments.items():
        if isinstance(value, bool) and not isinstance(getattr(request, name), bool):
            raise SpecError(f"argument {name!r}: must be a number, got {str(value).lower()}")


def _refusal(error: str) -> protocol.CallToolResult:
    return protocol.CallToolResult(content=[protocol.TextContent(text=error)], is_error=True)


def server_of(planner: Planner) -> Server[Any]:
    """The server, without a way to reach it."""
    return Server(
        NAME,
        version=version(NAME),
        instructions=INSTRUCTIONS,
        on_list_tools=planner.list_tools,
        on_call_tool=planner.call_tool,
    )


def run(
    limits: Limits, readable: tuple[Path, ...], writable: Path | None, workers: int | None
) -> None:
    """Answer over stdin and stdout until the client has gone."""
    planner = Planner(limits, readable=readable, writable=writable, workers=workers)
    signal.signal(signal.SIGTERM, _end)  # calls end first, and their folders go
    try:
        anyio.run(_serve, server_of(planner), MESSAGE_FACTOR * limits.input_bytes)
    except* (BrokenPipeError, anyio.BrokenResourceError):
        pass  # it has gone without a word


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(ENDED_BY + number)


async def _serve(server: Server[Any], most_bytes: int) -> None:
    lines = Lines(sys.stdin.fileno(), most_bytes, _is_message)
    async with stdio_server(stdin=cast("anyio.AsyncFile[str]", lines)) as (read, write):

        async def refuse(number: Id, why: str) -> None:
            error = protocol.ErrorData(code=protocol.INVALID_REQUEST, message=why)
            answer = protocol.JSONRPCError(jsonrpc="2.0", id=number, error=error)
            await write.send(SessionMessage(answer))

        lines.refuse = refuse
        await server.run(read, write, server.create_initialization_options())


def _is_message(text: str) -> bool:
    """Can the SDK read it?"""
    try:
        protocol.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        return False
    return True
