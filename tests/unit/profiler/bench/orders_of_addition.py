"""Sums of numbers of many ranks, in the orders in which a library adds them.

Those of NVIDIA/nccl @5067397c: a ring that begins at another rank for
each chunk (`src/device/all_reduce.h`, runRing), a chain in each node and two binary trees of the
nodes (`src/graph/trees.cc`, ncclGetBtree and ncclGetDtree; runTreeSplit adds one child after the
other), the sum of a node in its switch, in fp32 or in the format (`src/device/reduce_kernel.h`,
multimem.ld_reduce), below a tree of the nodes, and rings in nodes below a ring of the nodes.
"""

import numpy as np

PER_NODE = 8


def rounded(name, values):
    """To the nearest number of the format, of two the even one."""
    if name == "fp16":
        return values.astype(np.float16).astype(np.float32)
    if name == "fp32":
        return values
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def one_after_the_other(name, parts):
    """Sum along the first axis, rounded after each addition."""
    total = parts[0]
    for part in parts[1:]:
        total = rounded(name, total + part)
    return total


def ring(name, parts):
    """Every element is of a chunk of its own, which begins at another rank."""
    ranks, elements = parts.shape
    starts = np.random.default_rng(0).integers(ranks, size=elements)
    turned = (starts + np.arange(ranks)[:, None]) % ranks
    return one_after_the_other(name, np.take_along_axis(parts, turned, axis=0))


def binary_tree(name, parts):
    """Rank 0 is the root; one whose lowest bit is b has children half of b before and behind.

    A child behind the last rank is replaced by the next one half as far that is there.
    """
    total, count, bit = parts.copy(), len(parts), 2
    while bit < 2 * count:
        ranks = np.arange(bit, count, 2 * bit) if bit < count else np.array([0])
        if bit < count:
            total[ranks] = rounded(name, total[ranks] + total[ranks - bit // 2])
        behind = np.array([next_behind(rank, bit // 2, count) for rank in ranks], dtype=int)
        ranks, behind = ranks[behind > 0], behind[behind > 0]
        total[ranks] = rounded(name, total[ranks] + total[ranks + behind])
        bit *= 2
    return total[0]


def next_behind(rank, behind, count):
    while behind and rank + behind >= count:
        behind //= 2
    return behind


def trees(name, parts):
    """Each for half of the elements; the second one is a mirror, or moved by one rank."""
    half, even = parts.shape[1] // 2, len(parts) % 2 == 0
    second = parts[::-1] if even else np.roll(parts, -1, axis=0)
    both = binary_tree(name, parts[:, :half]), binary_tree(name, second[:, half:])
    return np.concatenate(both)


def by_node(parts):
    """(rank in the node, node, element); a last node with room is filled with nothing."""
    padded = np.zeros((-len(parts) % PER_NODE, parts.shape[1]), np.float32)
    return np.concatenate([parts, padded]).reshape(-1, PER_NODE, parts.shape[1]).swapaxes(0, 1)


ORDERS = {
    "ring": ring,
    "tree": trees,
    "chain and tree": lambda name, parts: trees(name, one_after_the_other(name, by_node(parts))),
    "switch in fp32": lambda name, parts: trees(name, rounded(name, by_node(parts).sum(0))),
    "switch in the format": lambda name, parts: trees(
        name, one_after_the_other(name, by_node(parts)[::-1])
    ),
    "rings of rings": lambda name, parts: ring(name, one_after_the_other(name, by_node(parts))),
}
