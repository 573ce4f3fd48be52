"""`plan serve`: the SDK's own client asks, over pipes and in this process."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from multiprocessing import active_children

import anyio
import click
import pytest
from anyio.from_thread import start_blocking_portal
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import LATEST_PROTOCOL_VERSION

from tests.e2e.command import PLAN, TINY, plan, refused
from trainplan.cli.commands import COMMANDS
from trainplan.cli.main import plan as group
from trainplan.cli.serve import calls, server
from trainplan.cli.serve.calls import Calls
from trainplan.cli.serve.fields import Apart, New
from trainplan.cli.serve.server import Planner, server_of
from trainplan.cli.serve.tools import TOOLS
from trainplan.cli.serve.work import Answer, Call, Limits

JOB = {"model": "gpt2", "cluster": "1x8:h100-sxm", "global_batch_size": 8, "seq_length": 1024}
LONG = {
    **{"model": "deepseek-v3", "cluster": "256x8:h100-sxm"},
    **{"global_batch_size": 15360, "seq_length": 4096, "time_limit": 500},
}
"""A search of minutes."""
LAUNCH = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 12 --hidden-size 768 "
    "--num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 "
    "--vocab-size 50257 --mock-data --tokenizer-type NullTokenizer --micro-batch-size 1 --bf16 "
    "--global-batch-size 64 --train-iters 10 --lr 1e-4 --tensor-model-parallel-size 8"
)
ON_TWO = LAUNCH.replace("node 8", "node 2").replace("parallel-size 8", "parallel-size 2")
"""The same on fewer GPUs."""
LIMITS = Limits(
    time_limit_s=60, most_time_s=600, calls=2, input_bytes=4_000_000, output_bytes=500_000
)


@pytest.fixture(scope="module")
def stdio():
    """Ask a server in a process of its own."""
    parameters = StdioServerParameters(
        command=PLAN[0], args=[*PLAN[1:], "serve", "--stdio"], env=dict(os.environ)
    )
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(parameters)) as client,
    ):
        yield lambda tool, **arguments: portal.call(client.call_tool, tool, arguments)


async def _ask(limits, folders, tool, arguments):
    planner = Planner(limits, **folders, workers=1)
    async with Client(server_of(planner), mode="legacy") as client:
        return await client.call_tool(tool, arguments)


def ask(tool, arguments, *, limits=LIMITS, readable=(), writable=None):
    """Ask a server in this process."""
    folders = {"readable": readable, "writable": writable}
    return anyio.run(_ask, limits, folders, tool, arguments)


def error_of(result):
    """The one line of a refusal."""
    assert result.is_error
    assert result.structured_content is None
    (content,) = result.content
    assert "\n" not in content.text
    assert "Traceback" not in content.text
    return content.text


def without_seconds(document):
    """A plan, but for the time that its search took."""
    certificate = {**document["certificate"], "search_seconds": None}
    return {**document, "certificate": certificate}


def test_every_tool_answers_as_its_command(stdio, tmp_path):
    path = tmp_path / "plan.json"
    expected = plan("search", *TINY, "--output", path, "--json").json
    found = stdio("search", **JOB, search_options="none")
    assert without_seconds(found.structured_content) == without_seconds(expected)
    first = found.content[0].text
    assert "a step" in first.splitlines()[1]
    assert "Kept as plan-1" in first

    launch = tmp_path / "launch.sh"
    launch.write_text(ON_TWO)
    cases = [
        ("estimate", {**JOB, "layout": "tp=2"}, ("estimate", *TINY, "--layout", "tp=2")),
        ("compare", {"first": "plan-1", "second": expected}, ("compare", path, path)),
        ("why_not", {"plan": "plan-1", "layout": "tp=8"}, ("why-not", path, "--layout", "tp=8")),
        (
            "sweep",
            {"plan": "plan-1", "vary": ["gpus=2,4"]},
            ("sweep", path, "--vary", "gpus=2,4"),
        ),
        (
            "replan",
            {"plan": "plan-1", "cluster": "1x4:h100-sxm", "restart": "10m"},
            ("replan", path, "--cluster", "1x4:h100-sxm", "--restart", "10m"),
        ),
        (
            "export",
            {"plan": "plan-1", "launcher": "slurm"},
            ("export", path, "--launcher", "slurm"),
        ),
        ("catalog", {"kind": "gpus", "name": "l4"}, ("catalog", "gpus", "l4")),
        ("schema", {"document": "replan-request"}, ("schema", "replan-request")),
        (
            "check",
            {"script": ON_TWO, "cluster": "1x2:l4"},
            ("check", launch, "--cluster", "1x2:l4"),
        ),
    ]
    for tool, arguments, words in cases:
        answer = stdio(tool, **arguments)
        typed = json.dumps(plan(*words, "--json").json).replace(f"{tmp_path}/", "")
        assert json.loads(json.dumps(answer.structured_content)) == json.loads(typed), tool
        assert answer.content[0].text
    explained = stdio("explain", plan="plan-1", time_limit=0.1)
    assert explained.structured_content["schema"] == "trainplan/explain/v1"
    assert explained.content[0].text.startswith(explained.structured_content["verdict"])
    assert set(TOOLS) == {"search", "explain", "report", *(tool for tool, _, _ in cases)}


BAD = {
    "search": ({**JOB, "model": "gpt9"}, ("search", *TINY[2:], "--model", "gpt9")),
    "estimate": ({**JOB, "layout": "tp=3"}, ("estimate", *TINY, "--layout", "tp=3")),
    "check": ({"script": LAUNCH, "set": ["NNODES"]}, ("check", "LAUNCH", "--set", "NNODES")),
    "explain": ({"plan": {"schema": "x/v9"}}, ("explain", "plan.json")),
    "why_not": (
        {"plan": {"schema": "x/v9"}, "layout": "tp"},
        ("why-not", "plan.json", "--layout", "tp"),
    ),
    "compare": ({"first": {}, "second": {}}, ("compare", "first.json", "second.json")),
    "sweep": ({"plan": {}, "vary": ["gpsu=8"]}, ("sweep", "plan.json", "--vary", "gpsu=8")),
    "replan": ({"plan": {}, "lost": ["1"]}, ("replan", "plan.json", "--lost", "1")),
    "export": ({"plan": {"schema": "x/v9"}}, ("export", "plan.json", "--json")),
    "report": (
        {"document": {"schema": "x/v9"}, "output": "r.html"},
        ("report", "document.json", "--output", "r.html"),
    ),
    "catalog": ({"kind": "gpus", "name": "l5"}, ("catalog", "gpus", "l5")),
    "schema": ({"document": "plam"}, ("schema", "plam")),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_bad_input_gets_the_line_that_the_command_prints(tool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, words = BAD[tool]
    for name, value in arguments.items():
        if isinstance(value, dict):
            (tmp_path / f"{name}.json").write_text(json.dumps(value))
    (tmp_path / "LAUNCH").write_text(LAUNCH)
    stated = error_of(ask(tool, arguments, writable=tmp_path))
    assert f"plan: error: {stated}" == refused(plan(*words))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "'model': is missing"),
        ({**JOB, "modle": "gpt2"}, "unknown argument 'modle': did you mean 'model'"),
        ({**JOB, "model": 3}, "'model': must be a name, or a document"),
        ({**JOB, "seq_length": 10**300}, "'seq_length': must be at most"),
        ({**JOB, "seq_length": 1e300}, "'seq_length': must be a smaller whole number"),
        ({**JOB, "seq_length": True}, "'seq_length': must be a number, got true"),
        ({**JOB, "profile": ["a\0b"]}, "a text has a NUL character in it"),
        ({**JOB, "fix": "tp=8"}, "'fix': must be a list"),
        ({**JOB, "time_limit": 1e9}, "at most 600 s"),
        ({**JOB, "model": {"model_type": "llama", "x": float("inf")}}, "model.json"),
        ({**JOB, "cluster": {"groups": [{"gpu": "l5", "num_nodes": 1, "gpus_per_node": 8}]}}, "l5"),
        ({**JOB, "fix": ["x" * 5_000_000]}, "at most 4,000,000 are taken"),
        ({**JOB, "model": "--help"}, "unknown model '--help'"),
        ({**JOB, "parts": ["best", "worst"]}, "'worst' is no key of the answer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said_in_a_line(arguments, words):
    assert words in error_of(ask("search", arguments))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"file": "train.sh"}, "unknown argument 'file': give the text of the launch as script"),
        (
            {"script": "train.sh"},
            "'script': must be the text of a launch, and 'train.sh'",
        ),
        ({"script": "/a/b/x.yaml\n"}, "give what that file holds, with its name as file_name"),
        ({"file_name": "train.sh"}, "argument 'script': is missing"),
    ],
)
def test_a_launch_is_given_as_its_text(arguments, words):
    assert words in error_of(ask("check", arguments))


def test_an_unknown_tool_is_an_error_of_the_protocol():
    async def serach():
        async with Client(server_of(Planner(LIMITS, readable=(), workers=1))) as client:
            with pytest.raises(MCPError, match="unknown tool 'serach': did you mean 'search'"):
                await client.call_tool("serach", {})

    anyio.run(serach)


def test_nothing_fits_is_an_answer():
    job = {**JOB, "model": "llama3-70b", "cluster": "1x1:l4"}
    found = ask("search", {**job, "time_limit": 0.3})
    assert not found.is_error
    assert found.structured_content["schema"] == "trainplan/infeasible/v1"


def test_a_model_may_be_given_inline_as_its_config_or_as_in_a_plan():
    own = ask("catalog", {"kind": "models", "name": "gpt2"}).structured_content
    spec = {
        k: v for k, v in own.items() if k not in ("source", "read", "assumed", "ignored", "notes")
    }
    again = ask("catalog", {"kind": "models", "name": spec}).structured_content
    assert again["num_parameters"] == own["num_parameters"]
    config = ask("catalog", {"kind": "models", "name": {**own["read"], "model_type": "gpt2"}})
    assert config.structured_content["num_parameters"] == own["num_parameters"]


def test_lengths_may_be_counts():
    counts = {"256": 3, "1024": 1}
    found = ask("estimate", {**JOB, "lengths": counts, "packing": "greedy", "layout": "tp=1"})
    stated = found.structured_content["training"]["lengths"]["counts"]
    assert stated == [[256, 3], [1024, 1]]


def test_a_launch_finds_the_files_that_are_given_beside_it():
    deepspeed = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}
    script = "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json"
    arguments = {"script": script, "model": "gpt2", "seq_length": 1024, "time_limit": 0.1}
    files = {"ds.json": json.dumps({**deepspeed, "bf16": {"enabled": True}})}
    found = ask("check", {**arguments, "global_batch_size": 8, "files": files})
    assert found.structured_content["layout"]["zero_stage"] == 2
    assert "ds.json" in {one["file"] for one in found.structured_content["fields"]}


def test_files_are_read_in_folders_that_are_allowed_alone(tmp_path):
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
        plan("catalog", "models", "--template")
        (folder / "model.yaml").write_text(plan("catalog", "models", "--template").out)
    (allowed / "link.yaml").symlink_to(other / "model.yaml")
    of = partial(ask, "catalog", readable=(allowed.resolve(),))
    found = of({"kind": "models", "name": str(allowed / "model.yaml")})
    assert found.structured_content["num_parameters"] == 8_030_261_248
    for path in (other / "model.yaml", allowed / "link.yaml", allowed / ".." / "other/model.yaml"):
        assert "--allow-files" in error_of(of({"kind": "models", "name": str(path)}))
    assert "--allow-files" in error_of(
        ask("catalog", {"kind": "models", "name": str(allowed / "model.yaml")})
    )


async def _session(folder):
    """An agent, from the names of the catalog to a folder that starts a training."""
    planner = Planner(LIMITS, readable=(), writable=folder, workers=1)
    async with Client(server_of(planner), mode="legacy") as client:

        async def ask_for(tool, **arguments):
            answer = await client.call_tool(tool, arguments)
            assert not answer.is_error, answer.content
            return answer.structured_content

        gpus = await ask_for("catalog", kind="gpus", parts=["gpus"])
        gpu = next(name for name in gpus["gpus"] if name.startswith("h100-sxm"))
        few = ["pp=1", "recompute=none"]
        await ask_for("search", **{**JOB, "fix": few, "cluster": f"1x8:{gpu}"})
        reasons = await ask_for("why_not", plan="plan-1", layout="tp=4")
        swept = await ask_for("sweep", plan="plan-1", vary=["gpus=2,8"])
        launch = await ask_for("export", plan="plan-1")
        again = await ask_for("export", plan="plan-1", parts=["files.run.sh"])
        made = await ask_for("export", plan="plan-1", output_dir="launch")
        pages = [
            await ask_for("report", document=document, output=f"{number}.html")
            for number, document in enumerate(("plan-1", swept))
        ]
        twice = await client.call_tool("export", {"plan": "plan-1", "output_dir": "launch"})
    return reasons, launch, again, made, pages, error_of(twice)


def test_an_agent_goes_from_a_search_to_files_that_start_the_training(tmp_path):
    folder = tmp_path.resolve()
    reasons, launch, again, made, pages, twice = anyio.run(_session, folder)
    assert reasons["verdict"] == "slower"
    assert launch["written"] == []
    assert launch["start"] == "./run.sh"
    assert again["files.run.sh"] == launch["files"]["run.sh"]
    assert made["files"] == launch["files"]
    assert made["written"] == [str(folder / "launch" / name) for name in ("run.sh", "plan.json")]
    script = folder / "launch" / "run.sh"
    assert os.access(script, os.X_OK)
    assert script.read_text() == launch["files"]["run.sh"]
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    unset = subprocess.run(["bash", script], check=False, capture_output=True, text=True)
    assert any(name in unset.stderr for name in launch["variables"])
    checked = plan("check", script, "--cluster", "1x8:h100-sxm", "--time-limit", "0.1", "--json")
    assert checked.json["layout"]["dp"] == 8
    for number, page in enumerate(pages):
        assert page["written"] == [str(folder / f"{number}.html")]
        text = (folder / f"{number}.html").read_text()
        assert "</html>" in text
        assert "trainplan-run-" not in text  # the folder of the call is nobody's
    assert twice.endswith("exists; --force replaces the files plan writes into it")


@pytest.mark.parametrize("name", ["../x", "/x", "a/b", "", ".x", "x" * 100, "a\0b"])
def test_files_are_made_under_bare_names_in_the_allowed_folder_alone(name, tmp_path):
    arguments = {"document": {}, "output": name}
    assert "a bare name" in error_of(ask("report", arguments, writable=tmp_path))
    assert "--write-files" in error_of(ask("report", {**arguments, "output": "x"}))
    assert list(tmp_path.iterdir()) == []


def test_no_file_is_replaced_through_a_link(tmp_path):
    outside = tmp_path / "outside.html"
    outside.write_text("mine")
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "r.html").symlink_to(outside)
    arguments = {"document": {"schema": "x"}, "output": "r.html"}
    assert "exists" in error_of(ask("report", arguments, writable=allowed))
    assert outside.read_text() == "mine"


def test_parts_of_an_answer_are_given_without_another_search():
    async def both():
        planner = Planner(LIMITS, readable=(), workers=1)
        async with Client(server_of(planner), mode="legacy") as client:
            wanted = {**JOB, "top": 2, "search_options": "none"}
            whole = await client.call_tool("search", wanted)
            part = await client.call_tool("search", {**wanted, "parts": ["best.layout"]})
        return whole, part

    whole, part = anyio.run(both)
    document = whole.structured_content
    assert part.structured_content == {
        "schema": document["schema"],
        "best.layout": document["best"]["layout"],
    }
    assert part.content == whole.content  # the same plan, the same seconds


def test_a_large_answer_is_cut_and_says_so():
    limits = Limits(60, 600, 2, 4_000_000, 20_000)
    found = ask("catalog", {"kind": "gpus"}, limits=limits)
    assert len(json.dumps(found.structured_content, ensure_ascii=False)) <= 20_000
    assert f"gpus: {len(found.structured_content['gpus'])} of " in found.content[0].text
    assert "`parts`" in found.content[0].text


def test_a_cancelled_search_ends_its_process():
    async def cancelled():
        begun = anyio.Event()

        async def hear(*_):
            begun.set()

        planner = Planner(LIMITS, readable=(), workers=1)
        async with Client(server_of(planner), mode="legacy") as client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(client.call_tool, "search", LONG, progress_callback=hear))
                await begun.wait()
                assert active_children()
                tasks.cancel_scope.cancel()
            hosts = await client.call_tool("catalog", {"kind": "hosts"})
            while active_children():  # ends within 2 s, or the test hangs
                await anyio.sleep(0.01)
        assert not hosts.is_error

    anyio.run(cancelled)


def test_what_a_killed_server_leaves_goes_with_the_next_call(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    parameters = StdioServerParameters(
        command="sh",
        args=["-c", 'echo $$ > "$TMPDIR/pid"; exec "$@"', "-", *PLAN, "serve", "--stdio"],
        env=environment,
    )

    async def killed():
        begun = anyio.Event()

        async def hear(*_):
            begun.set()

        async with Client(parameters) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(partial(client.call_tool, "search", LONG, progress_callback=hear))
            await begun.wait()
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
            tasks.cancel_scope.cancel()

    anyio.run(killed)
    (left,) = (path for path in tmp_path.iterdir() if path.is_dir())
    deadline = time.monotonic() + 30
    while left.exists():  # its process ends as soon as it notices, and holds the folder until then
        assert time.monotonic() < deadline
        ask("catalog", {"kind": "hosts"})
    assert [path.name for path in tmp_path.iterdir()] == ["pid"]


def wanted(tmp_path):
    request = TOOLS["catalog"].request.model_validate({"kind": "hosts"})
    return Call("catalog", request, (), {}, tmp_path, ())


async def _stated(_):
    """Nobody listens."""


def test_a_call_that_overruns_is_ended(tmp_path):
    found = anyio.run(Calls(1).run, wanted(tmp_path), 0.01, _stated)
    assert found == Answer(error="no answer within 0.01 s: request less, or raise time_limit")
    assert not active_children()


def test_a_process_that_dies_costs_its_call_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(calls, "work", lambda *_: os._exit(1))
    found = anyio.run(Calls(1).run, wanted(tmp_path), 60.0, _stated)
    assert "ended without an answer" in found.error


def test_a_bug_of_ours_is_said_in_a_line(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("divided\nby zero")

    monkeypatch.setattr(server, "shown", broken)
    written = error_of(ask("catalog", {"kind": "hosts"}))
    assert written == "this is a bug, please report it: ZeroDivisionError: divided by zero"


def test_too_many_calls_at_once_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(calls, "MOST_WAITING", 0)
    found = anyio.run(Calls(1).run, wanted(tmp_path), 60.0, _stated)
    assert "too many calls" in found.error


def test_garbage_is_ignored_pings_are_answered_while_it_searches_and_it_ends_with_its_client():
    process = subprocess.Popen(
        [*PLAN, "serve", "--stdio", "--workers", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin and process.stdout

    def write(text):
        process.stdin.write(text if isinstance(text, bytes) else json.dumps(text).encode() + b"\n")
        process.stdin.flush()

    def request(number, method, **params):
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    def read():
        return json.loads(process.stdout.readline())

    hello = {"protocolVersion": LATEST_PROTOCOL_VERSION, "capabilities": {}}
    write(request(1, "initialize", **hello, clientInfo={"name": "test", "version": "1"}))
    assert read()["result"]["serverInfo"]["name"] == "trainplan"
    write({"jsonrpc": "2.0", "method": "notifications/initialized"})
    for garbage in (b"\n", b"hello\n", b"{}\n", b"[1,2\n", b"\xff\x00\n", b"null\n", b'"x"\n'):
        write(garbage)
    write(b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":' + b"9" * 5000 + b"}}\n")
    answers = [read() for _ in range(8)]
    assert [one["id"] for one in answers] == [None] * 7 + [7]
    assert all("no message of JSON-RPC" in one["error"]["message"] for one in answers)
    search = {"name": "search", "arguments": LONG, "_meta": {"progressToken": "p"}}
    write(request("s", "tools/call", **search))
    assert read()["method"] == "notifications/progress"
    write(request(8, "ping"))
    while (heard := read()).get("id") != 8:
        assert heard["method"] == "notifications/progress"
    assert heard["result"] == {}
    process.stdin.close()
    rest = process.stdout.read().splitlines()
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest)
    assert process.wait() == 0
    assert b"Traceback" not in process.stderr.read()
    process.stdout.close()
    process.stderr.close()


NOT_REQUESTED = {
    "as_json",
    "output",
    "output_dir",
    "force",
    "workers",
    "write",
    "launch",
    "report",
    "verbose",
}
NOT_REQUESTED |= {"nodes", "gpus", "gpu"}  # `cluster` says the same
NOT_REQUESTED |= {"wanted"}  # so does `layout`, which a command takes in two places
NOT_REQUESTED |= {"offers"}  # a file of the user's; a client asks for one `price` after the other
NOT_REQUESTED |= {"take"}  # which plan a file has; a client is given all of them
NOT_REQUESTED |= {"one_rank"}  # it measures, on a GPU of the user's
"""What the server decides, or has no use for."""
CALLED = {
    "profile": "profiles",
    "option": "runtime_options",
    "set": "settings",
    "reserve": "reserve_bytes",
}
CALLED |= {"reserve_host": "reserve_host_bytes", "carbon": "kg_co2_per_kwh"}


@pytest.mark.parametrize("tool", TOOLS)
def test_a_request_has_the_options_of_its_command_and_their_defaults(tool):
    entry = TOOLS[tool]
    command = group.get_command(click.Context(group), entry.command)
    assert entry.command in COMMANDS
    if isinstance(command, click.Group):
        for name in TOOLS[tool].request.model_json_schema()["properties"]["kind"]["enum"]:
            assert name in command.commands
        return
    options = {option.name: option for option in command.params}
    fields = {
        CALLED.get(name, name): field
        for name, field in entry.request.model_fields.items()
        if not any(isinstance(mark, Apart) for mark in field.metadata)
    }
    apart = {"time_limit"} if entry.limited else set()
    made = set(entry.request.marked(New))
    assert made <= set(options)
    assert set(fields) == (set(options) - NOT_REQUESTED - apart) | made
    for name, field in fields.items():
        option = options[name]
        of_machine = name == "cluster" and field.is_required()  # this one is not asked for GPUs
        twice = name == "layout" and "wanted" in options
        assert field.is_required() == option.required or of_machine or twice, name
        if not field.is_required() and field.default not in (None, [], ()):
            assert field.default == (option.default if not option.is_flag else False), name


def test_every_argument_is_described():
    for entry in TOOLS.values():
        for name, argument in entry.request.model_json_schema()["properties"].items():
            assert argument.get("description"), (entry.command, name)


def test_the_list_of_tools_is_short_and_names_what_every_request_needs():
    """An agent pays for it in each session: 41,257 characters where it named every field."""
    tools = [server._described(name) for name in TOOLS]
    listed = [tool.model_dump_json(by_alias=True, exclude_none=True) for tool in tools]
    assert sum(map(len, listed)) < 20_000
    for tool in tools:
        full = TOOLS[tool.name].request.full()
        assert set(tool.input_schema["properties"]) <= set(full["properties"])
        assert tool.input_schema.get("required") == full.get("required")
        everything = set(tool.input_schema["properties"]) == set(full["properties"])
        assert everything or "additionalProperties" not in tool.input_schema


def test_a_field_that_the_list_does_not_name_is_taken_and_is_in_the_schema(stdio):
    (entry,) = stdio("schema", document="search-request").structured_content["properties"][
        "outer_dtype"
    ]["anyOf"][:1]
    assert entry == {"type": "string"}
    found = stdio("estimate", **JOB, layout="tp=2", loss_tokens=0.5, parts=["training"])
    assert found.structured_content["training"]["loss_tokens"] == 0.5


def test_without_a_way_to_be_reached_it_says_how():
    refused(plan("serve"), "--stdio")


def test_without_standard_input_it_says_so(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    refused(plan("serve", "--stdio"), "standard input or output is closed")


def test_a_folder_that_is_not_there_is_named(tmp_path):
    refused(plan("serve", "--stdio", "--allow-files", tmp_path / "x"), "no such folder")


@pytest.mark.parametrize("library", ["mcp", "mcp_types"])
def test_without_the_extra_it_says_what_to_install(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "trainplan.cli.serve.server", raising=False)
    refused(plan("serve", "--stdio"), "pip install 'trainplan[serve]'")


def test_without_any_library_of_the_extra_the_error_names_the_install():
    start = (
        "import sys; sys.modules.update(dict.fromkeys(('anyio', 'mcp', 'mcp_types'))); "
        "from trainplan.cli.main import main; sys.argv = ['plan', 'serve', '--stdio']; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", start], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr == (
        "plan: error: plan serve needs the public SDK of the protocol: pip install "
        "'trainplan[serve]'\n"
    )
