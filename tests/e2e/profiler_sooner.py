"""A session of the items of `plan profile` whose timings are done sooner."""

import sys

from trainplan.profiler.host import clock
from trainplan.profiler.journal import records
from trainplan.profiler.launch.session import main

if __name__ == "__main__":
    clock.QUICK_CAP_SECONDS = 0.02
    records.MOST_ATTEMPTS = 1  # a busy machine makes every timing doubtful
    sys.exit(main())
