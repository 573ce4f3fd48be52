"""Messages that are too long or none are refused by their id, and the next is read."""

import os
import threading

import anyio
import pytest

from trainplan.cli.serve.lines import CHUNK_BYTES, Lines

MOST = 1000


def read(*lines):
    """What of some lines is read, and what is refused."""
    read_end, write_end = os.pipe()

    def write():
        for line in lines:
            os.write(write_end, line)
        os.close(write_end)

    async def all_of_them():
        found, refused = [], []

        async def refuse(number, why):
            refused.append((number, why))

        reader = Lines(read_end, MOST, lambda text: text.startswith("{"))
        reader.refuse = refuse
        async for line in reader:
            found.append(line)
        return found, refused

    writer = threading.Thread(target=write)
    writer.start()
    try:
        return anyio.run(all_of_them)
    finally:
        writer.join()
        os.close(read_end)


@pytest.mark.parametrize("size", [MOST + 1, 3 * CHUNK_BYTES])
@pytest.mark.parametrize(
    ("begin", "end", "number"),
    [(b'{"id": 7,"x":"', b'"}', 7), (b'{"x":"', b'","id":"a-b"}', "a-b"), (b'{"x":"', b'"}', None)],
)
def test_a_message_that_is_too_long_is_refused_by_its_id(size, begin, end, number):
    found, refused = read(b'{"a":1}\n', begin + b"x" * size + end + b"\n", b'{"b":2}\n')
    assert found == ['{"a":1}\n', '{"b":2}\n']
    ((stated, why),) = refused
    assert stated == number
    assert "larger than 1,000 bytes" in why


def test_a_message_of_just_the_size_is_read_in_pieces():
    whole = b"{" + b"x" * (MOST - 1)
    found, refused = read(whole[:400], whole[400:], b"\n")
    assert found == [whole.decode() + "\n"]
    assert not refused


def test_what_is_no_message_is_refused():
    found, refused = read(b'[1] "id": 3\n', b'{"a":1}\n', b'{"cut off": ')
    assert found == ['{"a":1}\n']
    ((number, why),) = refused
    assert number == 3
    assert "no message" in why
