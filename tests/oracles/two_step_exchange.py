"""An exchange in one step and in two on processes of a CPU (gloo); started by torchrun.

`two_step_exchange.py NODE ROWS`: ranks of a node, rows for each rank. Prints what every rank sent
to its own node and to others, in bytes and messages, of both; they must agree on what arrives.
"""

import json
import sys
from collections import Counter

import torch
from torch import distributed

NODE, ROWS, WIDTH = int(sys.argv[1]), int(sys.argv[2]), 8


def exchange(rows, group, ranks, sent):
    """One all-to-all of equal parts, and what it sends where."""
    here = distributed.get_rank()
    size = rows.numel() * rows.element_size() // len(ranks)
    for rank in ranks:
        if rank != here:
            place = "node" if rank // NODE == here // NODE else "others"
            sent.update({f"{place} bytes": size, f"{place} messages": 1})
    out = torch.empty_like(rows)
    distributed.all_to_all_single(out, rows, group=group)
    return out


def main():
    distributed.init_process_group("gloo")
    here, world = distributed.get_rank(), distributed.get_world_size()
    nodes = world // NODE
    inner = [list(range(node * NODE, (node + 1) * NODE)) for node in range(nodes)]
    outer = [list(range(place, world, NODE)) for place in range(NODE)]
    groups = {tuple(ranks): distributed.new_group(ranks) for ranks in (*inner, *outer)}
    ours, alike = inner[here // NODE], outer[here % NODE]
    generator = torch.Generator().manual_seed(here)
    rows = torch.randn(world, ROWS, WIDTH, generator=generator)
    flat, steps, copied = Counter(), Counter(), 0
    whole = exchange(rows, None, range(world), flat)
    by_place = rows.view(nodes, NODE, ROWS, WIDTH).transpose(0, 1).contiguous()
    copied += by_place.numel() * by_place.element_size()
    met = exchange(by_place, groups[tuple(ours)], ours, steps)
    by_node = met.transpose(0, 1).contiguous()
    copied += by_node.numel() * by_node.element_size()
    arrived = exchange(by_node, groups[tuple(alike)], alike, steps)
    found = {"flat": flat, "steps": steps, "copied": copied}
    found["agree"] = torch.equal(arrived.view_as(whole), whole)
    found["bytes"] = rows.numel() * rows.element_size()
    every = [None] * world
    distributed.all_gather_object(every, found)
    if here == 0:
        sys.stdout.write(json.dumps(every) + "\n")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
