"""Rounds of torchft's DiLoCo among processes of a CPU, and the bytes that cross between them.

`outer_step_bytes.py ISLANDS EVERY FRAGMENTS ROUNDS`, in a network of its own (`unshare -rn`), where
no one else sends: its loopback counts. Each island is one rank. Prints JSON.
"""

import fcntl
import json
import multiprocessing
import os
import socket
import struct
import sys
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import torch
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo

ISLANDS, EVERY, FRAGMENTS, ROUNDS = map(int, sys.argv[1:5])
WIDTH, LAYERS = 512, 8
HERE, LIMIT = "127.0.0.1", timedelta(seconds=60)
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def sent_bytes():
    """That the loopback has sent."""
    lines = Path("/proc/net/dev").read_text("utf-8").splitlines()
    (line,) = (line for line in lines if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


def trained(number, together):
    """Bytes after each round, with a first one that does not count; and the sum of the weights."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    weights, each = [layer.weight for layer in layers], LAYERS // FRAGMENTS
    parts = [torch.nn.Sequential(*layers[i : i + each]) for i in range(0, LAYERS, each)]
    manager = Manager(
        pg=ProcessGroupGloo(timeout=LIMIT),
        min_replica_size=ISLANDS,
        load_state_dict=None,
        state_dict=None,
        use_async_quorum=False,
        init_sync=False,
        replica_id=f"island_{number}",
        lighthouse_addr=f"http://{HERE}:29510",
        hostname=HERE,
        timeout=LIMIT,
    )
    inner = torch.optim.SGD(weights, lr=0.1)
    outer = [torch.optim.SGD(part.parameters(), lr=0.7, momentum=0.9) for part in parts]
    counts = []
    with DiLoCo(manager, parts, inner, outer, sync_every=EVERY):
        for _ in range(ROUNDS + 1):
            for _ in range(EVERY):
                for weight in weights:
                    weight.grad = torch.full_like(weight, 0.01 * (number + 1))
                inner.step()
            together.wait()
            counts.append(sent_bytes())
            together.wait()
    return counts, sum(weight.detach().double().sum().item() for weight in weights)


def island(number, together, found):
    os.environ |= {"MASTER_ADDR": HERE, "MASTER_PORT": str(20_000 + number)}
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    _store = TCPStore(HERE, 20_000 + number, is_master=True, wait_for_workers=False)
    found.put((number, *trained(number, together)))
    found.close()
    found.join_thread()
    together.wait()
    os._exit(0)  # without the threads of the manager


def main():
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
    _server = LighthouseServer(bind=f"{HERE}:29510", min_replicas=ISLANDS, join_timeout_ms=1000)
    context = multiprocessing.get_context("spawn")
    together, found = context.Barrier(ISLANDS), context.Queue()
    processes = [context.Process(target=island, args=(i, together, found)) for i in range(ISLANDS)]
    for process in processes:
        process.start()
    results = sorted(found.get(timeout=240) for _ in processes)
    rounds = [after - before for before, after in pairwise(results[0][1])]
    alike = len({round(total, 6) for _, _, total in results}) == 1
    stated = {"rounds": rounds, "params": WIDTH * WIDTH * LAYERS, "alike": alike}
    sys.stdout.write(json.dumps(stated) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
