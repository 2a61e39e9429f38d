"""A small Llama with random weights and a tokenizer of words: what it writes is nonsense, what it costs is real."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LAYERS = 8
WIDTH = 256
HIDDEN = 688
WORDS = 2000


def save(folder: Path) -> None:
    """Write weights, configuration and tokenizer to a folder, as a model is published."""
    torch.manual_seed(0)
    tokenizer().save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=WORDS + 2,
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=1024,
        bos_token_id=1,
        eos_token_id=None,  # an answer is as long as asked for
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word; a word that it does not know is "word0"."""
    words = {"<pad>": 0, "<s>": 1, **{f"word{number}": number + 2 for number in range(WORDS)}}
    split = Tokenizer(models.WordLevel(words, unk_token="word0"))
    split.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"bos_token": "<s>", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(tokenizer_object=split, **special)
