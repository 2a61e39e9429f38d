"""Interactions of users with items, and the loader that hands them out."""

import torch
from torch.utils.data import DataLoader, Dataset


class Interactions(Dataset):
    def __init__(self, users=5000, items=8000, size=512):
        draw = torch.Generator().manual_seed(3)
        self.users = torch.randint(users, (size,), generator=draw)
        self.items = torch.randint(items, (size, 20), generator=draw)

    def __len__(self):
        return len(self.users)

    def __getitem__(self, index):
        return self.users[index], self.items[index]


def candidates(batch=128):
    return DataLoader(
        Interactions(), batch_size=batch, num_workers=2, persistent_workers=True
    )
