"""Data-parallel training of a small network, two ranks over gloo."""

import torch
import torch.distributed as dist
from network import Network, augment, loss_of

import perfgate

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(Network())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
torch.manual_seed(rank)
for _ in range(100_000):
    batch = augment(torch.randn(32, 128), rank)
    loss = loss_of(model(batch))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    perfgate.turn(loss=loss, samples=len(batch))
