"""A pipeline on the clock from what its ranks are told to do, written apart from the model."""

import re

PASS = re.compile(r"(\d+)([FIWB])(\d+)")


def actions_makespan(rows, seconds, p2p):
    """Seconds until the last rank has run its row of torch's actions, such as `3F7`.

    A rank runs one op after the other, each as soon as its input is there. What an action makes
    leaves for other ranks when its last op has ended. `seconds` are those of F, I and W by stage.
    """
    actions = [[_ops(cell) for cell in row] for row in rows]
    home = {stage: rank for rank, row in enumerate(actions) for ops in row for stage, *_ in ops}
    free, at, ended, sent = [0.0] * len(rows), [0] * len(rows), {}, {}
    while any(place < len(row) for place, row in zip(at, actions, strict=True)):
        ready = [rank for rank, row in enumerate(actions) if at[rank] < len(row)]
        ready = [rank for rank in ready if _arrived(actions[rank][at[rank]], rank, home, sent)]
        assert ready, "the ranks wait for one another"
        for rank in ready:
            ops = actions[rank][at[rank]]
            for op in ops:
                needed = _needed(op, home)
                if needed:
                    here = home[needed[0]] == rank
                    free[rank] = max(free[rank], ended[needed] if here else sent[needed] + p2p)
                free[rank] += _seconds(op, seconds)
                ended[_made(op)] = free[rank]
            sent |= {_made(op): free[rank] for op in ops}
            at[rank] += 1
    return max(free)


def _ops(cell):
    return [(int(stage), kind, int(number)) for stage, kind, number in PASS.findall(cell)]


def _made(op):
    """The gradient of the input is the same whether that of the weights is made beside it."""
    stage, kind, number = op
    return stage, "I" if kind == "B" else kind, number


def _needed(op, home):
    stage, kind, number = op
    if kind == "F":
        return (stage - 1, "F", number) if stage else None
    if kind == "W":
        return stage, "I", number
    return (stage, "F", number) if stage == max(home) else (stage + 1, "I", number)


def _arrived(ops, rank, home, sent):
    needed = [one for one in (_needed(op, home) for op in ops) if one]
    return all(home[one[0]] == rank or one in sent for one in needed)


def _seconds(op, seconds):
    stage, kind, _ = op
    forward, backward, weight = (one[stage] for one in seconds)
    return {"F": forward, "I": backward, "W": weight, "B": backward + weight}[kind]
