"""Train a small network on the answers of a large one."""

import torch
from networks import Network
from torch.nn import functional

torch.backends.cudnn.benchmark = True


class Distillation:
    def __init__(self, device, temperature=2.0):
        torch.manual_seed(0)
        self.teacher = Network(48).eval().to(device)
        self.student = Network(16).to(device)
        self.optimizer = torch.optim.SGD(
            self.student.parameters(), lr=0.01, momentum=0.9
        )
        self.temperature = temperature
        self.steps = 0
        self.total = torch.zeros((), device=device)

    def answers(self, images):
        with torch.no_grad():
            return functional.softmax(self.teacher(images) / self.temperature, dim=1)

    def step(self, images):
        target = self.answers(images)
        logits = self.student(images) / self.temperature
        loss = functional.kl_div(
            functional.log_softmax(logits, dim=1), target, reduction="batchmean"
        )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        self.total = self.total + loss.detach()
        return loss.detach()
