"""Plays a user's program: prints what it got, and runs while the file `hold` is in its folder."""

import os
import sys
import time
from pathlib import Path

print("user:", *sys.argv[1:], flush=True)
print("CUDA_VISIBLE_DEVICES:", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
while Path("hold").exists():
    time.sleep(0.05)
