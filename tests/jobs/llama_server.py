"""llama.cpp's own server of a tiny Llama with random weights: ``python llama_server.py LAYERS PORT``.

Needs xllamacpp and gguf. The model is made here; it reads letters and bytes, and writes letters.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

WIDTH, INNER, HEADS, CONTEXT, SLOTS = 128, 256, 4, 2048, 2
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LETTERS = ["\u2581", *"abcdefghijklmnopqrstuvwxyz"]  # U+2581 is a space
TOKENS = ["<unk>", "<s>", "</s>", *BYTES, *LETTERS]
KINDS = [
    gguf.TokenType.UNKNOWN,
    *[gguf.TokenType.CONTROL] * 2,
    *[gguf.TokenType.BYTE] * len(BYTES),
    *[gguf.TokenType.NORMAL] * len(LETTERS),
]
LAYER = {
    "attn_q": (WIDTH, WIDTH),
    "attn_k": (WIDTH, WIDTH),
    "attn_v": (WIDTH, WIDTH),
    "attn_output": (WIDTH, WIDTH),
    "ffn_gate": (INNER, WIDTH),
    "ffn_up": (INNER, WIDTH),
    "ffn_down": (WIDTH, INNER),
    "attn_norm": (WIDTH,),
    "ffn_norm": (WIDTH,),
}


def save(path: Path, layers: int) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([-float(number) for number in range(len(TOKENS))])
    writer.add_token_types(KINDS)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    random = np.random.default_rng(0)
    shapes = {f"blk.{layer}.{name}": shape for layer in range(layers) for name, shape in LAYER.items()}
    shapes |= {"token_embd": (len(TOKENS), WIDTH), "output": (len(TOKENS), WIDTH), "output_norm": (WIDTH,)}
    for name, shape in shapes.items():
        values = np.ones(shape) if len(shape) == 1 else random.normal(0, shape[-1] ** -0.5, shape)
        if name == "output":
            values[: -len(LETTERS) + 1] = 0
        writer.add_tensor(f"{name}.weight", values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    model = Path.home() / "tiny.gguf"
    save(model, int(sys.argv[1]))
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.port = int(sys.argv[2])
    params.n_parallel, params.n_ctx, params.cpuparams.n_threads, params.warmup = SLOTS, SLOTS * CONTEXT, 1, False
    server = xllamacpp.Server(params)
    print("listening at", server.listening_address, flush=True)
    threading.Event().wait()
