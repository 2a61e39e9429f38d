"""Continuous batching in a thread of its own: prompts first, then a token of each
request in a step.
"""

import queue
import threading
import time

import torch
from model import Decoder
from sampling import choose

SLOTS = 8


class Request:
    def __init__(self, tokens, wanted, emit):
        self.tokens, self.wanted, self.emit = tokens, wanted, emit
        self.written = []
        self.slot = None


class Engine(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        torch.manual_seed(0)
        self.model = Decoder(SLOTS).eval()
        self.waiting = queue.Queue()
        self.free = list(range(SLOTS))
        self.lock = threading.Lock()
        self.running = []

    def run(self):
        while True:
            self.admit()
            self.step()

    def admit(self):
        while self.free and (not self.running or not self.waiting.empty()):
            request = self.waiting.get()
            request.slot = self.free.pop()
            self.prefill(request)
            with self.lock:
                self.running.append(request)

    def prefill(self, request):
        positions = torch.arange(len(request.tokens))[None]
        scores = self.model(
            torch.tensor([request.tokens]), torch.tensor([request.slot]), positions
        )
        self.write([request], scores)

    def step(self):
        with self.lock:
            running = list(self.running)
        tokens = torch.tensor([[request.written[-1]] for request in running])
        slots = torch.tensor([request.slot for request in running])
        at = torch.tensor(
            [[len(request.tokens) + len(request.written) - 1] for request in running]
        )
        self.write(running, self.model(tokens, slots, at))
        self.finish()

    def write(self, requests, scores):
        for request, token in zip(
            requests, choose(scores, [request.written for request in requests])
        ):
            request.written.append(token)
            request.emit(token)

    def finish(self):
        with self.lock:
            done = [
                request
                for request in self.running
                if len(request.written) >= request.wanted
            ]
            self.running = [request for request in self.running if request not in done]
        self.free += [request.slot for request in done]


class Watch(threading.Thread):
    """Looks every few milliseconds how many requests are under way, for a gauge."""

    def __init__(self, engine, seconds=0.004):
        super().__init__(daemon=True)
        self.engine, self.seconds = engine, seconds
        self.most = 0

    def run(self):
        while True:
            with self.engine.lock:
                self.most = max(self.most, len(self.engine.running))
            time.sleep(self.seconds)
