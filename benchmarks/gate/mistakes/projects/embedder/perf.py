import random

from pipeline import load

from perfgate import Workload


def inputs(batch, seed):
    draw = random.Random(seed)
    return [
        " ".join(f"term{draw.randrange(3000)}" for _ in range(draw.randrange(20, 40)))
        for _ in range(batch)
    ]


embedder = Workload(
    build=load,
    inputs=inputs,
    call=lambda pipeline, texts: pipeline.encode(texts),
    batch=16,
)
