import torch
from training import Distillation

from perfgate import Workload


def inputs(batch, seed):
    return torch.randn(batch, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


distiller = Workload(
    build=Distillation,
    inputs=inputs,
    train_step=lambda training, images: training.step(images),
    batch=8,
)
