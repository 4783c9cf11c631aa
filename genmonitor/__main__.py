# SPDX-License-Identifier: Apache-2.0
"""`python -m genmonitor`, the same as the command `genmonitor`."""

from genmonitor.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
