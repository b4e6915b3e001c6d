"""What a meter says of the processor time of other processes."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.usage import Meter

BURN_S = 0.003  # less than the hundredths of a second that /proc counts in
BURNING = f"""
import sys, time
for line in sys.stdin:
    end = time.process_time() + {BURN_S}
    while time.process_time() < end:
        pass
    print(flush=True)
"""


def test_short_work_of_another_process_counts_with_all_its_time() -> None:
    command = [sys.executable, "-c", BURNING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(5):
            with Meter([process.pid]) as meter:
                process.stdin.write("\n")
                process.stdin.flush()
                process.stdout.readline()
            assert BURN_S <= meter.used.cpu_s < 100 * BURN_S
        process.stdin.close()
