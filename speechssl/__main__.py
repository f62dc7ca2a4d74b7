"""Run the command line by `python -m speechssl` or `torchrun -m speechssl`."""

import sys

from speechssl.cli import main

sys.exit(main())
