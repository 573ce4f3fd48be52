"""Which GPU of which node has which pipeline rank."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from trainplan.cli.blocks import Chart, Table, table
from trainplan.cli.pages.figures import DOWN, SERIES, chart, label
from trainplan.cli.words import plural
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.layout import Layout

MOST_NODES = 32
"""Rows of the map."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes in rank order."""

    layout: Layout
    sizes: Sequence[int]
    """GPUs of each."""
    names: Sequence[str]

    @property
    def starts(self) -> list[int]:
        """First rank of each node, and the number of all."""
        return list(accumulate(self.sizes, initial=0))

    @property
    def stage_ranks(self) -> int:
        """Ranks of one pipeline rank."""
        return self.layout.tp * self.layout.cp * self.layout.dp

    @property
    def shown(self) -> list[int]:
        """All, or where there is no room for all, those where pipeline ranks begin and end."""
        if len(self.sizes) <= MOST_NODES:
            return list(range(len(self.sizes)))
        starts, stage = self.starts, self.stage_ranks
        edges = [rank * stage + end for rank in range(self.layout.pp) for end in (0, stage - 1)]
        found = sorted({bisect_right(starts, edge) - 1 for edge in edges})
        return found if len(found) <= MOST_NODES else [*found[: MOST_NODES - 1], found[-1]]

    def ranks(self, node: int, width: int) -> list[int | None]:
        """Rank on each of `width` GPUs of a node; null: no such GPU, or the layout leaves it."""
        start = self.starts[node]
        here = (start + gpu if gpu < self.sizes[node] else None for gpu in range(width))
        return [one if one is not None and one < self.layout.world_size else None for one in here]

    def place(self, rank: int) -> str:
        """Where a rank is on every axis."""
        rest, tp = divmod(rank, self.layout.tp)
        rest, cp = divmod(rest, self.layout.cp)
        pp, dp = divmod(rest, self.layout.dp)
        return f"rank {rank}: pp {pp}, dp {dp}, cp {cp}, tp {tp}"


def ranks_chart(cluster: ClusterSpec, best: Layout, named: Sequence[str]) -> Chart:
    """A cell for each GPU: its pipeline rank, and its place on the other axes.

    `named` are names of the nodes in rank order, where they are known.
    """
    sizes = [group.gpus_per_node for group in cluster.groups for _ in range(group.num_nodes)]
    nodes = Nodes(best, sizes, named or [f"node {node}" for node in range(len(sizes))])
    shown = nodes.shown
    rest = f" Of {len(sizes):,} nodes {len(shown)} are drawn, where pipeline ranks begin and end."
    return chart(
        "ranks",
        "Every GPU with the number and colour of its pipeline rank; tensor ranks are neighbours, "
        "then come context, data and pipeline ranks",
        f"A pipeline rank has {plural(nodes.stage_ranks, 'GPU')}: tp {best.tp}, cp {best.cp}, "
        f"dp {best.dp}.{rest * (len(shown) < len(sizes))}",
        [_cells(nodes)],
        _table(nodes),
        x="GPU of the node",
        xaxis={"dtick": 1, "showgrid": False},
        yaxis={**DOWN, "showgrid": False, "type": "category"},
        height=80 + 26 * len(shown),
    )


def _cells(nodes: Nodes) -> dict[str, object]:
    """The heat map; a colour is a number of `SERIES`."""
    width, last = max(nodes.sizes), len(SERIES)
    rows = [nodes.ranks(node, width) for node in nodes.shown]
    stages = [[None if one is None else one // nodes.stage_ranks for one in row] for row in rows]
    return {
        "type": "heatmap",
        "z": [[None if one is None else one % last for one in row] for row in stages],
        "y": [label(nodes.names[node]) for node in nodes.shown],
        "x": list(range(width)),
        "text": [["" if one is None else str(one) for one in row] for row in stages],
        "texttemplate": "%{text}",
        "textfont": {"color": "@background", "size": 11},
        "customdata": [["" if one is None else nodes.place(one) for one in row] for row in rows],
        "hovertemplate": "%{y}, GPU %{x}: %{customdata}<extra></extra>",
        "zmin": -0.5,
        "zmax": last - 0.5,
        "colorscale": [
            [edge, colour] for i, colour in enumerate(SERIES) for edge in (i / last, (i + 1) / last)
        ],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
    }


def _table(nodes: Nodes) -> Table:
    rows = []
    for node in nodes.shown:
        here = [one for one in nodes.ranks(node, nodes.sizes[node]) if one is not None]
        ends = [nodes.place(here[0]), nodes.place(here[-1])] if here else ["unused", ""]
        rows.append((nodes.names[node], *ends))
    return table("First and last rank of each node", ("node", "first rank", "last rank"), rows)
