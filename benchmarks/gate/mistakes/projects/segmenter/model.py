"""Segment images: a small encoder of separable convolutions, pooling at several scales,
and a decoder with skips.
"""

import torch
from torch import nn
from torch.nn import functional


class Separable(nn.Sequential):
    def __init__(self, inside, outside, stride=1, dilation=1):
        super().__init__(
            nn.Conv2d(
                inside, inside, 3, stride, dilation, dilation, groups=inside, bias=False
            ),
            nn.BatchNorm2d(inside),
            nn.Conv2d(inside, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.Hardswish(),
        )


class PyramidPool(nn.Module):
    def __init__(self, width, sizes=(1, 2, 4)):
        super().__init__()
        self.sizes = sizes
        self.projections = nn.ModuleList(
            nn.Conv2d(width, width // len(sizes), 1) for _ in sizes
        )

    def forward(self, features):
        pooled = [features]
        for size, project in zip(self.sizes, self.projections):
            small = project(functional.adaptive_avg_pool2d(features, size))
            pooled.append(
                functional.interpolate(
                    small, features.shape[-2:], mode="bilinear", align_corners=False
                )
            )
        return torch.cat(pooled, 1)


class Segmenter(nn.Module):
    def __init__(self, classes=19, width=24):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.Hardswish()
        )
        self.down = nn.ModuleList(
            [Separable(width, 2 * width, 2), Separable(2 * width, 4 * width, 2)]
        )
        self.middle = nn.Sequential(
            *(Separable(4 * width, 4 * width, dilation=rate) for rate in (1, 2, 4))
        )
        self.pool = PyramidPool(4 * width, (1, 2, 4))
        self.reduce = nn.Conv2d(8 * width, 2 * width, 1)
        self.fuse = Separable(4 * width, 2 * width)
        self.head = nn.Conv2d(2 * width, classes, 1)

    def forward(self, images):
        full = images.shape[-2:]
        shallow = self.down[0](self.stem(images))
        deep = self.reduce(self.pool(self.middle(self.down[1](shallow))))
        deep = functional.interpolate(
            deep, shallow.shape[-2:], mode="bilinear", align_corners=False
        )
        logits = self.head(self.fuse(torch.cat([shallow, deep], 1)))
        return functional.interpolate(
            logits, full, mode="bilinear", align_corners=False
        ).argmax(1)
