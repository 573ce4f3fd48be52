"""Messages as they come in, none larger than is read."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError

CHUNK_BYTES = 1 << 16
ID = re.compile(rb'"id"\s*:\s*(?:(-?\d{1,18})|"([^"\\]{1,200})")')
ID_STANDS_WITHIN = 300
"""Bytes at either end of a message in which clients write its id."""
NO_MESSAGE = "no message of JSON-RPC, or with a number of too many digits or nested too deeply"
TOO_LARGE = "a message is larger than {most:,} bytes: it was not read"

Id = int | str | None


class Lines:
    """Lines of a descriptor that are messages; one that is none, or too long, is refused by its id.

    The SDK reads lines of any length, and drops what it cannot read: the client would wait.
    """

    def __init__(self, descriptor: int, most_bytes: int, is_message: Callable[[str], bool]) -> None:
        self._descriptor, self._most, self._is_message = descriptor, most_bytes, is_message
        self._read = bytearray()
        self._begin: bytes | None = None
        """Of a line that is too long."""
        self.refuse: Callable[[Id, str], Awaitable[None]] | None = None
        """Reports to the client which of its messages was refused, and why."""
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(1)
        self._reader: threading.Thread | None = None

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        """The next line, with its end."""
        while True:
            line, end, rest = self._read.partition(b"\n")
            if end:
                self._read = rest
                if self._begin is None and len(line) <= self._most:
                    text = line.decode("utf-8", errors="replace")
                    if self._is_message(text):
                        return text + "\n"
                    await self._refuse(bytes(line), NO_MESSAGE)
                else:
                    await self._refuse(bytes(line), TOO_LARGE.format(most=self._most))
            elif len(self._read) > self._most:
                self._begin = self._begin or bytes(self._read[:ID_STANDS_WITHIN])
                self._read = self._read[-ID_STANDS_WITHIN:]
            chunk = b"" if end else await self._more()
            if not end and not chunk:
                raise StopAsyncIteration
            self._read += chunk

    async def _more(self) -> bytes:
        """What comes next; empty: the client has gone."""
        if self._reader is None:
            loop = asyncio.get_running_loop()
            self._reader = threading.Thread(target=self._read_all, args=(loop,), daemon=True)
            self._reader.start()
        return await self._pieces.get()

    def _read_all(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand over one piece after the other, in a thread that no end of the server waits for."""
        chunk = b"begun"
        while chunk:
            chunk = os.read(self._descriptor, CHUNK_BYTES)
            handed = self._pieces.put(chunk)
            try:
                asyncio.run_coroutine_threadsafe(handed, loop).result()
            except (RuntimeError, CancelledError):  # the server has ended
                handed.close()
                return

    async def _refuse(self, line: bytes, why: str) -> None:
        begin, self._begin = self._begin or line[:ID_STANDS_WITHIN], None
        found = ID.search(begin) or ID.search(line[-ID_STANDS_WITHIN:])
        if self.refuse is not None:
            await self.refuse(_id(found) if found else None, why)


def _id(found: re.Match[bytes]) -> Id:
    number, text = found.groups()
    return int(number) if number else text.decode("utf-8", errors="replace")
