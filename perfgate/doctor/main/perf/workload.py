"""The workloads of the planted project: one that runs op by op, one compiled, one of equal rounds."""

import torch
from filter import Filter
from scorer import FEATURES, Scorer
from signer import Signer

from perfgate import Workload

BATCH = 48


def requests(batch, seed):
    return torch.randn(batch, FEATURES, generator=torch.Generator().manual_seed(seed))


def build_scorer(device):
    return Scorer(batch=BATCH, offers=128).eval().to(device)


def sums_to_one(reply, features):
    sums = reply.scores.sum(dim=-1)
    assert torch.allclose(sums, torch.ones(features.shape[0])), f"shares must sum to 1, found {sums[0]:.3f}"


def build_filter(device):
    # The eager backend takes the graphs as they are: no compiler has to be there, and only breaking them changes them.
    return torch.compile(Filter(FEATURES).eval().to(device), backend="eager")


def has_length_one(filtered, features):
    assert torch.allclose(filtered.norm(dim=-1), torch.ones(features.shape[0])), "requests must have length 1"


def build_signer(device):
    return Signer().eval().to(device)


def has_64_bytes(signature, _features):
    assert signature.shape == (64,), f"a signature has 64 bytes, found {tuple(signature.shape)}"


scorer = Workload(build=build_scorer, inputs=requests, check=sums_to_one, batch=BATCH)
compiled = Workload(build=build_filter, inputs=requests, check=has_length_one, batch=BATCH)
signer = Workload(build=build_signer, inputs=requests, check=has_64_bytes, batch=16)
