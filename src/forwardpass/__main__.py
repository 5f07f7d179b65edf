"""`python -m forwardpass` is the command `forwardpass`."""

import sys

from forwardpass.cli.main import main

sys.exit(main())
