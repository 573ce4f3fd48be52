"""How long programs take, candidate by candidate."""

from trainplan.costmodel.timeline.clock import place_ends


def makespan_seconds(waves, seconds, p2p):
    """End of the last op of each candidate."""
    return place_ends(waves, seconds, p2p).max(axis=0)
