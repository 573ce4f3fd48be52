"""Switches that the scale-out network is built of."""

from pydantic import Field

from trainplan.costmodel.spec import AmountOrZero, Spec


class SwitchSpec(Spec):
    """One kind of switch for the whole network, whose ports are as fast as adapters."""

    ports: int = Field(ge=4, le=1 << 16)
    """Ports of one switch at the speed of an adapter."""
    price: AmountOrZero | None = None
    """Of one switch, in the currency of the cluster; null: not known."""
    transceiver_price: AmountOrZero | None = None
    """Of one of the two transceivers of a link; null: not known."""
