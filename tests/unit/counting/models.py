"""Small models of the usual kinds; run as a module, it prints their counters from this and from a forked process."""

from __future__ import annotations

import json
import os
import sys

import torch
from torch import nn

from perfgate.measuring.counting.counters import count_calls
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload


def _random(*size):
    return lambda batch, seed: torch.randn(batch, *size, generator=torch.Generator().manual_seed(seed))


def _mlp(device):
    return nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.ReLU())]).eval()


def _conv(device):
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3)
    ).eval()


def _encoder(device):
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()


def _trainee(device):
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.1), nn.ReLU(), nn.Linear(64, 10))
    return model, torch.optim.Adam(model.parameters())


def _train(trainee, inputs):
    model, optimizer = trainee
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), torch.zeros(inputs.shape[0], dtype=torch.long))
    loss.backward()
    optimizer.step()
    return loss.detach()


MODELS = {
    "mlp": Workload(build=_mlp, inputs=_random(64), batch=8),
    "conv": Workload(build=_conv, inputs=_random(3, 32, 32), batch=2),
    "encoder": Workload(build=_encoder, inputs=_random(16, 64), batch=2),
    "lstm": Workload(build=lambda device: nn.LSTM(32, 64, 2, batch_first=True).eval(), inputs=_random(12, 32), batch=2),
    "train": Workload(build=_trainee, inputs=_random(64), batch=8, train_step=_train),
}


def _print_counters() -> None:
    device = open_device("cpu")
    found = {}
    for name, workload in MODELS.items():
        counters = count_calls(BoundWorkload(name, workload, device, seed=1), "default")
        found[name] = [counters.values, counters.unstable, [[op.op, op.count, op.line] for op in counters.ops]]
    sys.stdout.write(json.dumps(found, sort_keys=True) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    torch.set_num_threads(1)
    child = os.fork()
    if not child:
        _print_counters()
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise SystemExit("the forked process failed")
    _print_counters()
