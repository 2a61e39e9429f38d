"""Train a small encoder in several ranks; the last line of the loop is all that perfgate needs."""

from __future__ import annotations

import torch
import torch.distributed as dist
from data import batches
from torch import nn

import perfgate

WIDTH, LAYERS = 128, 4


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # "hccl" on NPUs
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True) for _ in range(LAYERS)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for batch in batches(dist.get_rank(), WIDTH):
        loss = (model(batch) - batch.flip(-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        perfgate.turn(loss=loss, samples=len(batch))


if __name__ == "__main__":
    main()
