"""What users do on an NPU beyond plain eager calls, each as a workload: mixed precision, graphs, formats, ranges."""

import torch
import torch_npu

from perfgate import Workload

FRACTAL_NZ, ND = 29, 2
WIDTH = 32


def build(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
    return model.eval().to(device)


def inputs(batch, seed):
    return torch.randn(batch, WIDTH, generator=torch.Generator().manual_seed(seed))


def call_autocast(model, x):
    with torch.autocast("npu", dtype=torch.float16):
        return model(x)


def call_with_formats(model, x):
    return torch_npu.npu_format_cast(torch_npu.npu_format_cast(model(x), FRACTAL_NZ), ND)


def call_in_range(model, x):
    number = torch.npu.mstx.range_start("ranking")
    y = model(x)
    torch.npu.mstx.range_end(number)
    return y


def call_waiting(model, x):
    y = model(x)
    torch.npu.synchronize()
    torch.npu.current_stream().synchronize()
    return y.sum().item(), y.cpu(), y[0].tolist()


class Replayed:
    """A model captured once; a call copies its input in and replays."""

    def __init__(self, device):
        self.model = build(device)
        self.given = torch.zeros(4, WIDTH, device=device)
        with torch.inference_mode():
            self.model(self.given)
            torch.npu.synchronize()
            self.graph = torch.npu.NPUGraph()
            with torch.npu.graph(self.graph):
                self.made = self.model(self.given)


def call_replayed(replayed, x):
    replayed.given.copy_(x)
    replayed.graph.replay()
    return replayed.made


def build_with_formats(device):
    torch.npu.config.allow_internal_format = True
    return build(device)


plain = Workload(build=build, inputs=inputs, batch=4)
autocast = Workload(build=build, inputs=inputs, batch=4, call=call_autocast)
formats = Workload(build=build_with_formats, inputs=inputs, batch=4, call=call_with_formats)
ranges = Workload(build=build, inputs=inputs, batch=4, call=call_in_range)
waiting = Workload(build=build, inputs=inputs, batch=4, call=call_waiting)
graph = Workload(build=Replayed, inputs=inputs, batch=4, call=call_replayed)
