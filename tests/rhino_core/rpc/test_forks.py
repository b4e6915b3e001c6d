"""A process with calls in progress starts programs, as PySpark starts the driver's JVM: in a fork with `preexec_fn`."""

from __future__ import annotations

import subprocess
import sys

STARTS = 40
PROGRAM = f"""
import rhino
import subprocess, threading
from concurrent.futures import ThreadPoolExecutor
import grpc

echo = grpc.method_handlers_generic_handler("test", {{"echo": grpc.unary_unary_rpc_method_handler(lambda r, _: r)}})
server = grpc.server(ThreadPoolExecutor(4), handlers=[echo])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
over = threading.Event()

def call():
    while not over.is_set():
        with grpc.insecure_channel(f"127.0.0.1:{{port}}") as channel:
            channel.unary_unary("/test/echo")(b"x")

callers = [threading.Thread(target=call) for _ in range(4)]
for caller in callers:
    caller.start()
print([subprocess.Popen(["/bin/true"], preexec_fn=bytes).wait() for _ in range({STARTS})])
over.set()
for caller in callers:
    caller.join()
server.stop(None).wait()
"""


def test_a_program_starts_beside_calls_in_progress() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == str([0] * STARTS), done.stderr
    assert "fork" not in done.stderr  # gRPC's handlers of forks, which end some of them
    assert done.returncode == 0, done.stderr
