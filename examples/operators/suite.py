"""The cases that the operator is measured on, and the native operator that it is compared with."""

from kernels import EPSILON, rms_norm
from torch.nn import functional

from perfgate import operator


def native(x, weight):
    return functional.rms_norm(x, weight.shape, weight, EPSILON)


norm = operator(
    rms_norm,
    reference=native,
    cases={
        "token": {"shapes": [(1, 1024), (1024,)]},
        "prompt": {"shapes": [(512, 1024), (1024,)]},
        "transposed": {"shapes": [(512, 1024), (1024,)], "strides": [(1, 512), None]},
        "double": {"shapes": [(256, 1024), (1024,)], "dtype": "float64"},
    },
)
