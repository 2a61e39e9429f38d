"""A small residual network with a pyramid on top."""

from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)

    def forward(self, images):
        hidden = functional.relu(self.norm(self.first(images)))
        return functional.relu(images + self.second(hidden))


class Pyramid(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Residual(width), Residual(width))
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.head = nn.Conv2d(width, 8, 1)

    def forward(self, images):
        fine = self.blocks(self.enter(images))
        coarse = functional.relu(self.down(fine))
        merged = fine + functional.interpolate(
            coarse, size=fine.shape[-2:], mode="nearest"
        )
        return self.head(merged)
