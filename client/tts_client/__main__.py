"""`python -m tts_client`, the same as `tts-client`."""

import sys

from tts_client.cli import main

sys.exit(main())
