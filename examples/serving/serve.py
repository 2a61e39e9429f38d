"""Serve the model with `transformers serve` on the port behind ``--port``, its memory for keys and values bounded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from model import save
from transformers.cli.transformers import main

OPTIONS = (
    "--device cpu --dtype float32 --attn-implementation sdpa --host 127.0.0.1 "
    "--continuous-batching --cb-block-size 32 --cb-num-blocks 64 --cb-max-batch-tokens 256"
)

if __name__ == "__main__":
    folder = Path.home() / "model"
    save(folder)
    # The server calls the model by the path that it is started with.
    os.chdir(folder.parent)
    sys.argv = ["transformers", "serve", folder.name, *OPTIONS.split(), *sys.argv[1:]]
    main()
