"""`python -m examples.demo`: NEXMark NBQ8 on a local cluster, with a live handover and a lost worker."""

import sys

from examples.demo.run import main

sys.exit(main(sys.argv[1:]))
