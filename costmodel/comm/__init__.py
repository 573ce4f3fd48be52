"""Seconds of collectives and messages on the links of a machine.

`topology` has which ranks form a group, what link carries it and which nodes of a placement talk to
each other; `collectives` what a collective takes there, `proxies` what the host posts for GPUs.

bus_factor: bytes on the busiest link over bytes of the full tensor, by collective.
choose: rates of two alternatives, by row.
Collective: a collective in each group, for tensors of any size.
collective: price of a collective in each group, whatever its size.
collective_rate: seconds to start, per byte and per root of bytes, of a collective in each group.
collective_seconds: seconds of a collective over a full tensor in each group.
DEFAULT_PROXY: who posts the messages of DeepEP where none is stated.
exchange_speed: bytes per second that a rank sends to other nodes in a plain all-to-all.
fit_column: column of a machine's fits for each group.
Group: one communicator a row: ranks, ranks in a domain, stride, domains, bytes per second.
group: the links of groups of so many ranks at a stride.
hops_seconds: seconds of the hops of a ring or tree between nodes.
joined: every pair of nodes of several lists once.
link_speed: bytes per second of a message in a domain, by stride.
message_seconds: seconds of a point-to-point message.
nic_share: bytes that one NIC sends for each byte of the full tensor.
only: a rate where a condition holds, nothing elsewhere.
Pairs: nodes that exchange messages, (pair, 2).
Paths: nodes that a pipeline passes, (path, hop, 2).
pipeline_neighbour: share of hops between pipeline ranks that leave a domain.
Places: how ranks lie on nodes.
proxied_seconds: seconds of messages that the host posts.
Rate: seconds to start, per byte and per root of bytes, one row a group.
start_growth: how much later a collective of more than 8 ranks starts.
"""

from trainplan.costmodel.comm.collectives import (
    Collective,
    Rate,
    bus_factor,
    choose,
    collective,
    collective_rate,
    collective_seconds,
    fit_column,
    hops_seconds,
    message_seconds,
    nic_share,
    only,
    start_growth,
)
from trainplan.costmodel.comm.proxies import DEFAULT_PROXY, exchange_speed, proxied_seconds
from trainplan.costmodel.comm.topology import (
    Group,
    Pairs,
    Paths,
    Places,
    group,
    joined,
    link_speed,
    pipeline_neighbour,
)
