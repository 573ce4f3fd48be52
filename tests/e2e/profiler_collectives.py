"""A session of collectives, messages and links on tiny tensors."""

import sys

from trainplan.profiler.bench import collectives, links
from trainplan.profiler.host import clock
from trainplan.profiler.journal import records
from trainplan.profiler.launch.session import main

if __name__ == "__main__":
    collectives.CPU_SIZES = (2**12,)
    clock.CAP_SECONDS = 0.02
    links.SIZE = {"cpu": 2**14}
    records.MOST_ATTEMPTS = 1  # tests count what is measured, however noisy the machine
    items = (collectives.COLLECTIVES, collectives.P2P, links.LINKS)
    sys.exit(main(items={item.name: item for item in items}))
