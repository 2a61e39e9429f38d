"""Data-parallel training in two ranks over gloo."""

import torch
import torch.distributed as dist
from data import Batches
from network import Classifier, accuracy
from torch.nn import functional

import perfgate

STEPS = 1_000_000


def report(scores, labels, rank):
    """What the first rank's log would show of a step."""
    return accuracy(scores.detach(), labels) if rank == 0 else None


def train():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(Classifier())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = Batches(rank)
    for _ in range(STEPS):
        tokens, labels = batches.next()
        scores = model(tokens)
        loss = functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(scores, labels, rank)
        perfgate.turn(loss=loss, samples=len(labels))


if __name__ == "__main__":
    train()
