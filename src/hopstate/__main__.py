"""`python -m hopstate` is `hopstate`: what torchrun starts."""

import sys

from hopstate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
