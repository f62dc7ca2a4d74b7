"""`python -m speechssl`, and what `torchrun -m speechssl` launches."""

import sys

from speechssl.cli import main

sys.exit(main())
