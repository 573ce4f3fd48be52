"""Switches and transceivers of the scale-out network: any-to-any, and of rails alone."""

from trainplan.costmodel import catalog
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.spec import Spec


class Built(Spec):
    """What a network takes that gives every adapter its whole bandwidth."""

    tiers: int
    """Of switches that a message may pass up."""
    switches: int
    """Of all tiers."""
    transceivers: int
    """Two for each link, those of adapters included."""
    price: float | None
    """In the currency of the cluster; null: a price is not stated."""


class Fabric(Spec):
    """The network of a cluster in both shapes, without oversubscription."""

    any_to_any: Built
    """A folded Clos network of all adapters."""
    rail_only: Built | None
    """One for each rail; null: domains of the groups have unlike rails."""


def fabric_of(cluster: ClusterSpec) -> Fabric | None:
    """Both networks of a cluster; null: its switches are not stated, or it is one domain.

    Source: counts of `clos`; rails of Wang et al., arXiv:2307.12169, each a network of its own.
    """
    domains = {g.domain_gpus(catalog.device(g)) for g in cluster.groups}
    if cluster.switches is None or cluster.num_gpus <= min(domains):
        return None
    adapters = [g.nic.per_node if g.nic else g.gpus_per_node for g in cluster.groups]
    ends = sum(g.num_nodes * n for g, n in zip(cluster.groups, adapters, strict=True))
    of_gpu = {n / g.gpus_per_node for g, n in zip(cluster.groups, adapters, strict=True)}
    alike = len(domains) == len(of_gpu) == 1
    rails = round(max(1.0, domains.pop() * of_gpu.pop())) if alike else 0
    stated = cluster.switches
    prices = (stated.price, stated.transceiver_price)
    both = [_built(*clos(stated.ports, ends, n), *prices) for n in (1, rails or 1)]
    return Fabric(any_to_any=both[0], rail_only=both[1] if rails else None)


def _built(
    tiers: int, switches: int, transceivers: int, each: float | None, transceiver: float | None
) -> Built:
    known = each is not None and transceiver is not None
    price = switches * (each or 0.0) + transceivers * (transceiver or 0.0)
    return Built(
        tiers=tiers, switches=switches, transceivers=transceivers, price=price if known else None
    )


def clos(ports: int, ends: int, rails: int = 1) -> tuple[int, int, int]:
    """Tiers, switches and transceivers of equal folded Clos networks, one for each rail.

    Source: derived; of as few tiers as reach all ends. Every tier but the top has half its ports
    downwards, the top all of them, so ends of one network are at most 2 (ports / 2)^tiers, and each
    has a link below each tier. Rails that fill no switch share one.
    """
    half, of_rail = ports // 2, -(-ends // rails)
    tiers = next(n for n in range(1, 64) if 2 * half**n >= of_rail)
    if tiers == 1:
        switches = -(-rails // (2 * half // of_rail))
    else:
        switches = rails * ((tiers - 1) * -(-of_rail // half) + -(-of_rail // (2 * half)))
    return tiers, switches, 2 * tiers * ends
