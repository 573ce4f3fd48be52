"""Runs programs in forks of one process that has imported what they share, and nothing of ours.

Every line of stdin is a JSON list: a file for what is printed, then the words of a command line,
`pytest ...` or a file of Python. The answer is a line with its exit code.
"""

import json
import os
import runpy
import sys
from pathlib import Path

import click  # noqa: F401
import hypothesis  # noqa: F401
import numpy.typing  # noqa: F401
import pytest
import rich.table  # noqa: F401
import yaml  # noqa: F401
from pydantic import BaseModel, TypeAdapter  # noqa: F401


def run(words):
    """Exit code of a command line."""
    sys.argv = words
    if words[0] == "pytest":
        return pytest.main(words[1:])
    runpy.run_path(words[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    for line in sys.stdin:
        output, *words = json.loads(line)
        if child := os.fork():
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            sys.stdout.write(f"{code}\n")
            sys.stdout.flush()
            continue
        with Path(output).open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.exit(run(words))
