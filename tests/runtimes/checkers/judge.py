"""Frame of a checker: launches as JSON in, a line of verdict for each out.

Each launch is judged in a fork, since runtimes keep their settings in globals and variables.
"""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable

OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what a runtime prints is no verdict


def judge(accept: Callable[[dict], dict], *, last: bool = False) -> None:
    """`accept` says what the runtime understood of a launch, or raises what the runtime raises.

    It is asked as the first rank, and as the `last` one: stages of a pipeline differ.
    """
    for launch in json.load(sys.stdin):
        ranks = (0, launch["ranks"] - 1) if last else (0,)
        written = [_separate(accept, launch, rank) for rank in ranks]
        verdict = next((one for one in written if one["refusal"]), written[0])
        print(json.dumps({"name": launch["name"], **verdict}), file=OUT, flush=True)


def _separate(accept: Callable[[dict], dict], launch: dict, rank: int) -> dict:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as out:
            json.dump(_verdict(accept, launch, rank), out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stated:
        text = stated.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"refusal": "the process died"}


def _verdict(accept: Callable[[dict], dict], launch: dict, rank: int) -> dict:
    os.environ.update(launch["environment"])
    os.environ.update(WORLD_SIZE=str(launch["ranks"]), RANK=str(rank), LOCAL_RANK="0")
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29500")
    written = io.StringIO()
    try:
        with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
            return {"refusal": None, "understood": accept(launch)}
    except BaseException as error:  # noqa: BLE001 - parsers exit, and whatever is raised is a verdict
        last = written.getvalue().strip().splitlines()[-1:]
        return {"refusal": f"{type(error).__name__}: {error} {' '.join(last)}"[:1000]}
