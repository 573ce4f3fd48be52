"""The nodes of a run: each one's `plan` tells node 0 that it lives, and what ends the run there.

Node 0 listens at --rdzv-endpoint and passes on what a node says. Ranks are started once all nodes
are there; a node that is killed, stopped or cut off is noticed without any rank's help.
"""

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Self

from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.launch.lines import LONGEST_LINE, Kind, Line, Word
from trainplan.profiler.launch.paths import Launch
from trainplan.profiler.watch import Fault

BEAT_SECONDS = 0.5
SHORTEST_SILENCE_SECONDS = 5.0
"""A node that others load is not taken for a dead one, however short --timeout is."""
POLL_SECONDS = 0.1
PART_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the ranks of one launch meet."""

    host: str
    port: int
    listening: int | None = None
    """Descriptor of the socket, on node 0."""


def _listening(port: int) -> socket.socket:
    """At all addresses of this host; port 0: one that is free."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


class FaultError(ProfilerError):
    """A run that ends before it is done."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


@dataclass(slots=True)
class Nodes:
    """All nodes, seen by one of them."""

    where: Launch
    pause: Callable[[float], object]
    """Waits; raises where this process is told to end."""
    now: Callable[[], float] = monotonic
    host: str = field(default_factory=socket.gethostname)
    _server: socket.socket | None = None
    _meeting: socket.socket | None = None
    _lines: list[Line] = field(default_factory=list)
    _port: dict[int, int] = field(default_factory=dict)
    _last_sent: float = 0.0

    def __enter__(self) -> Self:
        """Node 0 listens, the others call until it does.

        Raises:
            ProfilerError: The port is taken, or node 0 does not answer in time.
        """
        if self.where.nnodes > 1 and self._first:
            self._server = self._listen()
        elif self.where.nnodes > 1:
            self._lines.append(Line(self._call(), self.now()))
        return self

    def __exit__(self, *ended: object) -> None:
        for line in self._lines:
            line.hang_up()
        until = self.now() + PART_SECONDS
        for line in self._lines:
            line.part(max(0.01, until - self.now()))
        for listening in (self._server, self._meeting):
            if listening:
                listening.close()

    @property
    def _first(self) -> bool:
        return self.where.node_rank == 0

    def _listen(self) -> socket.socket:
        port = self.where.endpoint[1]
        try:
            server = _listening(port)
        except OSError as error:
            raise ProfilerError(
                f"--rdzv-endpoint {self.where.rdzv_endpoint}: node 0 cannot listen at port {port} "
                f"({error.strerror}): choose another"
            ) from error
        server.settimeout(0.0)
        return server

    def _call(self) -> socket.socket:
        until = monotonic() + self.where.start_seconds  # looking up a name may hold us for long
        while True:
            try:
                found = socket.create_connection(self.where.endpoint, timeout=1.0)
            except OSError as error:
                if monotonic() > until:
                    raise ProfilerError(
                        f"node 0 does not answer at {self.where.rdzv_endpoint} "
                        f"({error.strerror or error}) {self._late}: start it, or correct "
                        "--rdzv-endpoint"
                    ) from error
                self.pause(POLL_SECONDS)
            else:
                found.settimeout(0.0)
                return found

    @property
    def _late(self) -> str:
        return f"in {self.where.start_seconds:g} s (--start-timeout)"

    def meet(self, launch: int) -> Meeting | None:
        """Wait until all nodes are ready for their ranks, the `launch`-th time, from 0.

        Null where node 0 starts no more of them: its budget is used up.

        Raises:
            FaultError: A node does not come, or something ends the run.
        """
        until = self.now() + self.where.start_seconds
        self._say("ready", number=launch)
        while missing := self._missing(launch):
            if fault := self.look():
                raise FaultError(fault)
            if not self._first and self._lines[0].done:
                return None
            if self.now() > until:
                raise FaultError(Fault(self._absent(missing)))
            self.pause(POLL_SECONDS)
        if not self._first:
            return Meeting(self.where.endpoint[0], self._port[launch])
        return self._opened(launch)

    def _missing(self, launch: int) -> list[int]:
        """Nodes that are not ready; for others than node 0 that is node 0 while it waits."""
        if not self._first:
            return [] if launch in self._port else [0]
        ready = {line.peer.node for line in self._lines if line.peer and line.peer.number >= launch}
        return [node for node in range(1, self.where.nnodes) if node not in ready]

    def _absent(self, missing: list[int]) -> str:
        if not self._first:
            return f"node 0 did not start the ranks {self._late}: see its output"
        who = f"node {missing[0]}" if len(missing) == 1 else f"{len(missing)} nodes"
        listed = ", ".join(map(str, missing[:8])) + ", ..." * (len(missing) > 8)
        return (
            f"{who} of {self.where.nnodes} did not come {self._late}: start the same command there "
            f"with --node-rank {listed}"
        )

    def _opened(self, launch: int) -> Meeting:
        """A new socket, whose port the others are told."""
        if self._meeting:
            self._meeting.close()
        alone = self.where.nnodes == 1
        self._meeting = socket.create_server(("127.0.0.1", 0)) if alone else _listening(0)
        port = self._meeting.getsockname()[1]
        self._say("go", number=port)
        host = "127.0.0.1" if alone else self.where.endpoint[0]
        return Meeting(host, port, self._meeting.fileno())

    def look(self) -> Fault | None:
        """Tell the others that this node lives, and see what they say and who has gone."""
        self._accept()
        if self.now() - self._last_sent > BEAT_SECONDS:
            self._say("beat")
        faults = [fault for line in self._lines for fault in self._heard(line)]
        if self._first:
            self._let_go()
        faults += [fault for line in self._lines for fault in self._gone(line)]
        return next(iter(faults), None)

    def _let_go(self) -> None:
        """Of who called and is no node."""
        strangers = [line for line in self._lines if not (line.open or line.peer)]
        for line in strangers:
            line.connection.close()
            self._lines.remove(line)

    def _accept(self) -> None:
        while self._server:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            connection.settimeout(0.0)
            self._lines.append(Line(connection, self.now()))

    def _heard(self, line: Line) -> Iterator[Fault]:
        for word in line.words(self.now()):
            if line.peer is None and self._first and word.kind != "ready":
                line.open = False
                return
            if line.peer is None or word.kind == "ready":
                if refusal := self._refuses(word, line):
                    yield Fault(refusal)
                line.peer = word
            if word.kind == "go":
                self._port[len(self._port)] = word.number
            elif word.kind == "done":
                line.done = True
            elif word.kind == "fault":
                yield Fault(word.text, of_task=word.of_task)

    def _refuses(self, word: Word, line: Line) -> str:
        """Why a node that comes cannot be one of this run."""
        if not self._first:
            return ""
        if (word.num_nodes, word.nproc) != (self.where.nnodes, self.where.nproc_per_node):
            return (
                f"node {word.node} ({word.host}) was started for {word.num_nodes} nodes of "
                f"{word.nproc} processes, node 0 ({self.host}) for {self.where.nnodes} of "
                f"{self.where.nproc_per_node}: start the same command on every node"
            )
        others = [one.peer.node for one in self._lines if one is not line and one.peer]
        if word.node in (0, *others):
            return f"{word.host} and another host are both node {word.node}: number them anew"
        return ""

    def _gone(self, line: Line) -> Iterator[Fault]:
        if line.done:
            return
        who = f"node {line.peer.node} ({line.peer.host})" if line.peer else "node 0"
        silence = max(self.where.timeout_seconds, SHORTEST_SILENCE_SECONDS)
        if not line.open:
            yield Fault(
                f"{who} is gone: its `plan` was killed, its host went down, or it is of another "
                f"version; see its output"
            )
        elif self.now() - line.heard > silence and line.peer:
            yield Fault(
                f"{who} was silent for {silence:g} s (--timeout): its `plan` is stopped, or "
                f"the network to it is down"
            )

    def _say(self, kind: Kind, **more: object) -> None:
        """To all that this node has a line to."""
        self._last_sent = self.now()
        fields = {"kind": kind, "node": self.where.node_rank, "host": self.host, **more}
        fields |= {"num_nodes": self.where.nnodes, "nproc": self.where.nproc_per_node}
        for line in self._lines:
            line.say(Word.model_validate(fields))

    def tell(self, fault: Fault) -> None:
        """Tell the others why this node ends; node 0 passes on what it was told."""
        self._accept()
        self._say("fault", text=fault.text[: LONGEST_LINE // 2], of_task=fault.of_task)

    def tell_done(self) -> None:
        """Tell the others that this node has done its part."""
        self._say("done")
