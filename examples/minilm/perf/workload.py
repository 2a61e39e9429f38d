"""What the gate measures here: one call embeds two sentences, as one does to compare them."""

import random
from functools import lru_cache

import torch
from encoder import SentenceEncoder, load_tokenizer
from sentences import sentences

from perfgate import Workload

tokenizer = lru_cache(maxsize=1)(load_tokenizer)
built = []  # the model that is measured, for `check` to ask


def build(device):
    """Load the model onto the device."""
    built[:] = [SentenceEncoder.load(device)]
    return built[0]


def inputs(batch, seed, *, words, tokens):
    """Draw real sentences of so many words."""
    return random.Random(seed).sample(sentences(*words), batch), tokens


def preprocess(drawn):
    """Tokenize, padded to a fixed length, so that every call does the same work."""
    texts, tokens = drawn
    encoded = tokenizer()(texts, padding="max_length", truncation=True, max_length=tokens, return_tensors="pt")
    return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"]}


def check(embeddings, _inputs):
    """Raise where an embedding is malformed, or where the model no longer knows which sentences mean the same."""
    assert torch.isfinite(embeddings).all(), "an embedding is not finite"
    assert (embeddings.norm(dim=-1) - 1).abs().max() < 1e-3, "an embedding is not of unit length"
    (model,) = built
    device = next(model.parameters()).device
    with torch.inference_mode():
        vectors = model(**{name: value.to(device) for name, value in preprocess((PARAPHRASES, 24)).items()}).cpu()
    likeness = vectors @ vectors.T
    assert min(likeness[0, 1], likeness[2, 3]) > 0.6, "two sentences that mean the same lie apart"
    assert likeness[:2, 2:].max() < 0.2, "two sentences that have nothing in common lie close together"


PARAPHRASES = [
    "The file is opened for reading.",
    "This opens a file so that it can be read.",
    "Heavy rain is expected in the north tonight.",
    "Tonight it will rain a lot in northern areas.",
]

minilm = Workload(
    build=build,
    inputs=inputs,
    preprocess=preprocess,
    check=check,
    shapes={
        "sentence": {"words": (12, 24), "tokens": 32},
        "short": {"words": (2, 5), "tokens": 8},  # the extreme: starting an op costs more here than its arithmetic
    },
    batch=2,
    batch_sizes=(1, 2, 4, 8, 16),
)
