"""An exchange in one step and in two on processes of a CPU (gloo).

`two_step_exchange.py RANKS ROWS NODE...`: processes, rows for each, ranks of a node. For each
number of ranks of a node a line of what every rank sent to its own node and to others, in bytes
and messages, of both; they must agree on what arrives. The ranks are forks of one process: torch
is imported once.
"""

import json
import sys
from collections import Counter
from multiprocessing import get_context
from tempfile import TemporaryDirectory

import torch
from torch import distributed

RANKS, ROWS, WIDTH = int(sys.argv[1]), int(sys.argv[2]), 8
NODES = [int(word) for word in sys.argv[3:]]


def exchange(rows, group, ranks, sent, node):
    """One all-to-all of equal parts, and what it sends where."""
    here = distributed.get_rank()
    size = rows.numel() * rows.element_size() // len(ranks)
    for rank in ranks:
        if rank != here:
            place = "node" if rank // node == here // node else "others"
            sent.update({f"{place} bytes": size, f"{place} messages": 1})
    out = torch.empty_like(rows)
    distributed.all_to_all_single(out, rows, group=group)
    return out


def compared(node):
    """Both on nodes of so many ranks, said by the first rank."""
    here, world = distributed.get_rank(), distributed.get_world_size()
    nodes = world // node
    inner = [list(range(first, first + node)) for first in range(0, world, node)]
    outer = [list(range(place, world, node)) for place in range(node)]
    groups = {tuple(ranks): distributed.new_group(ranks) for ranks in (*inner, *outer)}
    ours, alike = inner[here // node], outer[here % node]
    generator = torch.Generator().manual_seed(here)
    rows = torch.randn(world, ROWS, WIDTH, generator=generator)
    flat, steps, copied = Counter(), Counter(), 0
    whole = exchange(rows, None, range(world), flat, node)
    by_place = rows.view(nodes, node, ROWS, WIDTH).transpose(0, 1).contiguous()
    copied += by_place.numel() * by_place.element_size()
    met = exchange(by_place, groups[tuple(ours)], ours, steps, node)
    by_node = met.transpose(0, 1).contiguous()
    copied += by_node.numel() * by_node.element_size()
    arrived = exchange(by_node, groups[tuple(alike)], alike, steps, node)
    found = {"flat": flat, "steps": steps, "copied": copied}
    found["agree"] = torch.equal(arrived.view_as(whole), whole)
    found["bytes"] = rows.numel() * rows.element_size()
    every = [None] * world
    distributed.all_gather_object(every, found)
    if here == 0:
        sys.stdout.write(json.dumps(every) + "\n")
        sys.stdout.flush()


def main(rank, store):
    distributed.init_process_group("gloo", store, rank=rank, world_size=RANKS)
    for node in NODES:
        compared(node)
    distributed.destroy_process_group()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        fork = get_context("fork")
        ranks = [
            fork.Process(target=main, args=(rank, f"file://{folder}/store"))
            for rank in range(RANKS)
        ]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
    sys.exit(max(abs(one.exitcode) for one in ranks))
