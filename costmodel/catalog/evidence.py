"""How well the catalog knows a GPU: measured on it, on a similar one, or assumed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainplan.costmodel.catalog import entries as catalog
from trainplan.costmodel.hardware import EvidenceKind, FittedConstants
from trainplan.costmodel.job import Precision

ORDER: tuple[EvidenceKind, ...] = ("measured", "stand-in", "assumed")
"""Best first."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the curves of one GPU in one precision rest on."""

    products: EvidenceKind
    """Matrix products, their speed in a training loop included."""
    attention: EvidenceKind
    collectives: EvidenceKind
    """Inside one scale-up domain."""

    @property
    def weakest(self) -> EvidenceKind:
        """The worst of the three."""
        return _worst((self.products, self.attention, self.collectives))


def evidence_of(gpu: str, precision: Precision) -> Evidence:
    """What products, attention and collectives of a GPU of the catalog rest on.

    Raises:
        CatalogError: No GPU of that name.
    """
    link, name = catalog.gpu(gpu).link, catalog.stand_in(gpu)
    own, other = catalog.fitted(gpu), catalog.fitted(name) if name else FittedConstants()
    same_link = name is not None and catalog.gpu(name).link == link
    return Evidence(
        products=_worst((_of(_gemm, precision, own, other), _of(_loop, precision, own, other))),
        attention=_of(_attention, precision, own, other),
        collectives=_of(_collectives, precision, own, other if same_link else FittedConstants()),
    )


Known = Callable[[FittedConstants, Precision], Iterable[EvidenceKind]]
"""What some numbers of one GPU rest on; none: it has none of them."""


def _of(
    known: Known, precision: Precision, own: FittedConstants, other: FittedConstants
) -> EvidenceKind:
    """Of the GPU's own numbers, as they state; of a similar GPU's, `stand-in` at best."""
    mine, others = tuple(known(own, precision)), tuple(known(other, precision))
    if mine or not others:
        return _worst(mine or ("assumed",))
    return _worst((*others, "stand-in"))


def _gemm(fits: FittedConstants, precision: Precision) -> Iterable[EvidenceKind]:
    name = catalog.products_fit(precision)
    return (fits.gemm[name].kind,) if name in fits.gemm else ()


def _loop(fits: FittedConstants, precision: Precision) -> Iterable[EvidenceKind]:
    """Speed of a training loop over a burst: of the precision, or the next one that has it."""
    names = catalog.sustained_fits(precision)
    return [fits.sustained[name].kind for name in names if name in fits.sustained][:1]


def _attention(fits: FittedConstants, _: Precision) -> Iterable[EvidenceKind]:
    return (fits.attention.kind,) if fits.attention else ()


def _collectives(fits: FittedConstants, _: Precision) -> Iterable[EvidenceKind]:
    return (fit.kind for fit in fits.collectives.values())


def _worst(kinds: Iterable[EvidenceKind]) -> EvidenceKind:
    return max(kinds, key=ORDER.index)
