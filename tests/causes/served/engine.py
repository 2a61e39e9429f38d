"""Continuous batching: every step computes one token of each request under way."""

import asyncio
import time  # noqa: F401 - for a plant

import torch
from model import WINDOW, pick

MOST_AT_ONCE = 8


class Request:
    def __init__(self, tokens, wanted):
        self.tokens, self.wanted = tokens, wanted
        self.written = []
        self.ready = asyncio.Queue()


class Engine:
    def __init__(self, model):
        self.model = model
        self.waiting = asyncio.Queue()
        self.running = []

    async def run(self):
        while True:
            await self.admit()
            self.step()
            await asyncio.sleep(0)

    async def admit(self):
        if not self.running:
            self.running.append(await self.waiting.get())
        while len(self.running) < MOST_AT_ONCE and not self.waiting.empty():
            self.running.append(self.waiting.get_nowait())

    def step(self):
        scores = self.model(torch.tensor([self.window(request) for request in self.running]))
        for request, token in zip(self.running, pick(scores)):
            request.written.append(token)
            request.ready.put_nowait(len(request.written))
        self.running = [request for request in self.running if len(request.written) < request.wanted]

    def window(self, request):
        tokens = (request.tokens + request.written)[-WINDOW:]
        return [0] * (WINDOW - len(tokens)) + tokens
