"""What nodes tell each other, over sockets of this host and by a clock that the test turns."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.launch.nodes import FaultError, Nodes
from trainplan.profiler.launch.paths import Launch
from trainplan.profiler.watch.watch import Fault


class Cluster:
    """Nodes `host0`, `host1`, ... of a run."""

    def __init__(self, num_nodes=2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.launch = Launch(2, num_nodes, 0, f"127.0.0.1:{port}", 60.0, 300.0)
        self.seconds, self.hurry, self.nodes = 0.0, 0.0, []

    def pause(self, seconds):
        """A moment for the others, which may be long by the clock."""
        self.seconds += self.hurry
        time.sleep(0.002)

    def join(self, number, **changes):
        where = replace(self.launch, node_rank=number, **changes)
        node = Nodes(where, self.pause, now=lambda: self.seconds, host=f"host{number}")
        self.nodes.append(node)
        return node.__enter__()

    def met(self, launch=0):
        """All nodes, each ready for its ranks."""
        with ThreadPoolExecutor() as pool:
            meetings = list(pool.map(lambda node: node.meet(launch), self.nodes))
        return meetings

    def look(self, node):
        """What a node sees within a moment."""
        for _ in range(500):
            if fault := node.look():
                return fault
            self.pause(0)
        return None


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    for node in made.nodes:
        for line in node._lines:
            line.hang_up()
    for node in made.nodes:
        node.__exit__()


@pytest.fixture
def pair(cluster):
    first, second = cluster.join(0), cluster.join(1)
    cluster.met()
    assert first.look() is None
    assert second.look() is None
    return first, second


def refusal(node):
    with pytest.raises(FaultError) as error:
        node.meet(0)
    return str(error.value)


def test_one_node_meets_at_a_free_port_of_its_own(cluster):
    cluster.launch = Launch(2)
    meeting = cluster.join(0).meet(0)
    assert meeting.host == "127.0.0.1"
    with socket.create_connection((meeting.host, meeting.port)):
        pass


def test_nodes_meet_at_another_port_for_every_launch_of_ranks(cluster):
    cluster.join(0)
    cluster.join(1)
    ports = set()
    for launch in range(3):
        first, second = cluster.met(launch)
        assert (first.host, first.port) == (second.host, second.port)
        assert second.listening is None
        ports.add(first.port)
    assert len(ports) == 3


def test_a_node_that_never_comes_is_named_with_what_to_do(cluster):
    first, cluster.hurry = cluster.join(0), 10.0
    assert "node 1 of 2 did not come in 300 s (--start-timeout)" in refusal(first)
    assert 300 < cluster.seconds < 330


def test_node_0_that_never_answers_is_named_with_its_address(cluster):
    with pytest.raises(ProfilerError, match=r"node 0 does not answer at 127.* \(--start-timeout\)"):
        cluster.join(1, start_seconds=0.05)


def test_a_port_that_is_taken_is_named(cluster):
    with (
        socket.create_server(("127.0.0.1", cluster.launch.endpoint[1])),
        pytest.raises(ProfilerError, match="cannot listen at port"),
    ):
        cluster.join(0)


@pytest.mark.parametrize("text", ["", "node0", "node0:", ":6000", "node0:port", "node0:70000"])
def test_an_endpoint_that_is_none_is_refused(text):
    with pytest.raises(SpecError, match="is no HOST:PORT"):
        _ = Launch(2, 2, 0, text).endpoint


def test_an_address_of_version_6_stands_in_brackets():
    assert Launch(2, 2, 0, "[fe80::1]:6000").endpoint == ("fe80::1", 6000)


@pytest.mark.parametrize("struck", [0, 1])
def test_a_node_that_is_killed_is_named_at_once(cluster, pair, struck):
    for line in pair[struck]._lines:
        line.connection.close()  # as the system does
    fault = cluster.look(pair[1 - struck])
    assert fault.text.startswith(f"node {struck} (host{struck}) is gone: its `plan` was killed")
    assert not fault.of_task


@pytest.mark.parametrize("struck", [0, 1])
def test_a_node_that_is_stopped_is_named_after_the_timeout_and_not_before(cluster, pair, struck):
    other = pair[1 - struck]
    cluster.seconds += 60
    assert other.look() is None
    cluster.seconds += 1
    text = other.look().text
    assert text.startswith(f"node {struck} (host{struck}) was silent for 60 s (--timeout)")


def test_nodes_that_live_and_a_command_that_was_held_itself_are_no_fault(cluster, pair):
    for _ in range(5):
        cluster.seconds += 40
        for node in pair:
            assert node.look() is None
    cluster.seconds += 600
    pair[0].look()  # says that it lives, late
    time.sleep(0.05)
    assert pair[1].look() is None


@pytest.mark.parametrize("struck", [0, 1, 2])
def test_all_nodes_say_what_ended_the_run_on_one(cluster, struck):
    cluster.launch = replace(cluster.launch, nnodes=3)
    nodes = [cluster.join(number) for number in range(3)]
    cluster.met()
    fault = Fault("rank 5 on host2 was killed by SIGSEGV", of_task=True)
    nodes[struck].tell(fault)
    for number in (0, 1, 2):
        if number != struck:
            assert cluster.look(nodes[number]) == fault
            nodes[number].tell(fault)  # as the run does; node 0 passes it on


def test_a_node_that_has_done_its_part_may_go(cluster, pair):
    pair[1].tell_done()
    pair[1].__exit__()
    for _ in range(20):
        assert pair[0].look() is None
        cluster.pause(0)


def test_nodes_of_other_commands_are_refused(cluster):
    first, second = cluster.join(0), cluster.join(1, nproc_per_node=4)
    with ThreadPoolExecutor() as pool:
        stated = pool.submit(refusal, first)
        waits = pool.submit(refusal, second)
        assert (
            "was started for 2 nodes of 4 processes, node 0 (host0) for 2 of 2" in stated.result()
        )
        first.tell(Fault(stated.result()))
        assert waits.result() == stated.result()


def test_two_nodes_of_one_number_are_refused(cluster):
    cluster.launch = replace(cluster.launch, nnodes=3)
    first, one, same = cluster.join(0), cluster.join(1), cluster.join(1)
    one._say("ready")
    same._say("ready")
    assert "are both node 1" in refusal(first)


@pytest.mark.parametrize(
    "written", [b"GET / HTTP/1.1\r\n\r\n", b"x" * 2**16, b'{"kind":"beat"}\n', b""]
)
def test_whoever_calls_and_is_no_node_is_let_go_and_the_run_goes_on(cluster, written):
    first = cluster.join(0)
    with socket.create_connection(cluster.launch.endpoint) as stranger:
        stranger.sendall(written)
        cluster.join(1)
        cluster.met()
        assert first.look() is None


def test_an_address_at_which_something_else_answers_is_said_so(cluster):
    with socket.create_server(("127.0.0.1", cluster.launch.endpoint[1])) as server:
        second = cluster.join(1)
        answering, _ = server.accept()
        answering.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
        assert "node 0 is gone" in refusal(second)
        answering.close()


@pytest.mark.parametrize("stated", [True, False])
def test_node_0_that_starts_no_more_ranks_ends_the_others_at_once(cluster, pair, stated):
    first, second = pair
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(second.meet, 1)
        if stated:
            first.tell_done()  # its budget is spent
            first.__exit__()
            assert waits.result() is None
        else:
            first.__exit__()
            with pytest.raises(FaultError, match=r"node 0 .*is gone"):
                waits.result()
    assert cluster.seconds == 0
