"""`python -m ripple`: the same command line as `ripple`."""

import sys

from ripple.cli import main

if __name__ == "__main__":
    sys.exit(main())
