"""The problems that other planners ship, solved under their own definitions of cost.

python examples/home_ground/run.py galvatron --checkout ~/Hetu-Galvatron
python examples/home_ground/run.py all --checkout ~/peers --json

A checkout is the top of the peer's repository; with `all` it is the folder that holds them all
under the names of their repositories.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

from answers import Process, Row, document, text

from trainplan.costmodel.base.errors import PlanError

PEERS = {
    "galvatron": "Hetu-Galvatron",
    "sailor": "sailor",
    "piper": "piper",
    "metis": "Metis",
    "alpa": "alpa",
    "zero-bubble": "zero-bubble-pipeline-parallelism",
}
"""Repository of every peer; `answer_NAME.py` asks its questions, and is imported for them."""


def main() -> int:
    """Exit code: 0 all solved, 2 for an input that is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("peer", choices=[*PEERS, "all"])
    parser.add_argument("--checkout", type=Path, required=True, help="the peer's repository")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for a problem")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    rows: list[Row] = []
    try:
        names = list(PEERS) if options.peer == "all" else [options.peer]
        modules = [import_module(f"answer_{name.replace('-', '_')}") for name in names]
        start = time.process_time()
        for name, module in zip(names, modules, strict=True):
            folder = options.checkout
            if options.peer == "all":
                folder /= PEERS[name]
            rows += module.rows(folder, options.time_limit)
    except PlanError as error:
        sys.stderr.write(f"run.py: error: {error}\n")
        return 2
    process = Process(start, time.process_time())
    shown = document(rows, process) if options.json else "\n".join(text(rows, process))
    sys.stdout.write(shown + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
