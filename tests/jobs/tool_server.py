"""`transformers serve` for benchmark tools: a tiny model with a chat template; ``python tool_server.py FOLDER PORT``.

The tools send fields of vLLM's, such as ``ignore_eos``, which transformers refuses; here it leaves them unread.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "serving"))

from model import save
from serve import OPTIONS
from transformers.cli.serving.chat_completion import ChatCompletionHandler
from transformers.cli.serving.completion import CompletionHandler
from transformers.cli.transformers import main

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    save(folder / "model")
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    (folder / "model" / "chat_template.jinja").write_text(template, encoding="utf-8")
    ChatCompletionHandler._valid_params_class = CompletionHandler._valid_params_class = None
    os.chdir(folder)
    sys.argv = ["transformers", "serve", "model", *OPTIONS.split(), "--port", sys.argv[2]]
    main()
