"""What commands of nodes say to each other, and the connection they say it over."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, NonNegativeInt, ValidationError

from trainplan.costmodel.spec import Spec

LONGEST_LINE = 1 << 14
Kind = Literal["ready", "go", "beat", "fault", "done"]
"""`ready`: for launch `number` of ranks. `go`: they meet at `number`, a port of node 0. `fault`:
what ends the run. `done`: this node has done its part."""


class Word(Spec):
    """What the `plan` of a node says, a line of JSON."""

    kind: Kind
    node: NonNegativeInt
    host: str = Field(max_length=255)
    number: int = 0
    num_nodes: int = 0
    nproc: int = 0
    text: str = Field("", max_length=LONGEST_LINE // 2)
    of_task: bool = False


@dataclass(slots=True)
class Line:
    """A connection to another `plan`, used without waiting for it."""

    connection: socket.socket
    heard: float
    peer: Word | None = None
    """Its first word."""
    open: bool = True
    done: bool = False
    _read: bytes = b""
    _unsent: bytes = b""

    def say(self, word: Word) -> None:
        """Send, as much as goes; the rest goes with the next word."""
        self._unsent += word.model_dump_json().encode() + b"\n"
        with suppress(OSError):  # it is full, or gone: then reading tells
            self._unsent = self._unsent[self.connection.send(self._unsent) :]

    def words(self, now: float) -> Iterator[Word]:
        """What has come, up to the last whole line; anything else than words ends the line."""
        try:
            part = self.connection.recv(LONGEST_LINE)
            self.open, self.heard = bool(part), now
            self._read += part
        except BlockingIOError:
            pass
        except OSError:
            self.open = False
        *lines, self._read = self._read.split(b"\n")
        for line in lines:
            try:
                yield Word.model_validate_json(line)
            except ValidationError:
                self.open = False
        self.open = self.open and len(self._read) < LONGEST_LINE

    def hang_up(self) -> None:
        """Say no more."""
        with suppress(OSError):
            self.connection.send(self._unsent)
            self.connection.shutdown(socket.SHUT_WR)

    def part(self, seconds: float) -> None:
        """Close it once the other end has read what was said: it closes then, too."""
        with suppress(OSError):
            self.connection.settimeout(seconds)
            while self.connection.recv(LONGEST_LINE):
                pass
        self.connection.close()
