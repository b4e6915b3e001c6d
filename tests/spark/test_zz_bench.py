
import subprocess, sys, time
from tests.spark import conftest
def test_bench():
    left = 345 - (time.monotonic() - conftest.T0)
    with open("/tmp/h7bench.log", "w") as log:
        subprocess.run([sys.executable, "-m", "benchmarks.overhead", "--settings", "r1", "r2-synced", "--loads", "nbq8", "count", "--rounds", "2",
            "--batches", "6", "--rows-per-batch", "20000", "--json", "/tmp/h7-over.json"], stdout=log, stderr=log, timeout=left)
