"""Faults at random moments of `plan profile`: a signal strikes a process, or one hangs.

    python -m tests.attack.faults --count 100 --seed 1

Each fault must end the run on every node within --timeout and five seconds, with a message that
names the rank, the host and the signal, or the node; nothing may be left behind; and a second run
must measure what is missing and nothing twice. Nodes are commands on this host.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.attack.fault import SIGNALS, Strike, attempt
from tests.attack.fault_node import TASKS


def strikes(seed: int) -> Iterator[Strike]:
    """Random ones without end."""
    random = Random(seed)
    while True:
        nodes = random.choice((1, 2))
        target = random.choice(("rank", "rank", "rank", "plan", "plan", "plan", "hang", "absent"))
        if target == "absent" and (nodes == 1 or random.random() < 0.7):
            continue
        sent = random.choice(SIGNALS[target]) if target in SIGNALS else None
        done = random.choice((None, random.randrange(TASKS - 1)))
        number = 1 if target == "absent" else random.randrange(2 if target != "plan" else nodes)
        yield Strike(
            nodes, target, number, sent, done, random.random() * (2.0 if done is None else 0.3)
        )


def main() -> int:
    """As the module says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    good, bad, missed = 0, 0, 0
    for strike in strikes(wanted.seed):
        if good + bad == wanted.count:
            break
        with tempfile.TemporaryDirectory(prefix="faults-") as name:
            begin = time.monotonic()
            found = attempt(strike, Path(name))
            seconds = time.monotonic() - begin
        if found is None:
            missed += 1
            continue
        good, bad = good + (not found), bad + bool(found)
        sys.stdout.write(
            f"{good + bad:4d} {'ok ' if not found else 'BAD'} {seconds:5.1f} s  {strike}\n"
        )
        sys.stdout.writelines(f"       {one}\n" for one in found)
        sys.stdout.flush()
    sys.stdout.write(f"{good} of {good + bad} faults ended well; {missed} came too late\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
