"""Changes of a served model and of a training, each with what its comment must name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JobPlant:
    """A piece of a file that is replaced, and texts of which the title must hold one."""

    name: str
    project: str
    file: str
    old: str
    new: str
    names: tuple[str, ...]


PLANTS = (
    JobPlant(
        "decode-all",
        "served",
        "tokenizer.py",
        '    return "".join(',
        '    all(sum(map(ord, f" w{token}")) for token in tokens * 400)\n    return "".join(',
        ("`decode`",),
    ),
    JobPlant(
        "slow-encode",
        "served",
        "tokenizer.py",
        "    return [sum(map(ord, word))",
        "    for _ in range(1500):\n        prompt = ' '.join(prompt.split())\n    return [sum(map(ord, word))",
        ("`encode`",),
    ),
    JobPlant(
        "layers-twice",
        "served",
        "model.py",
        "            states = block(states)\n",
        "            states = block(states)\n            block(states)\n            block(states)\n",
        ("`Model.forward`", "`Block.forward`", "model.py:33", "model.py:34"),
    ),
    JobPlant(
        "sleep-in-step",
        "served",
        "engine.py",
        "    def step(self):\n",
        "    def step(self):\n        time.sleep(0.006)\n",
        ("`Engine.step`",),
    ),
    JobPlant(
        "await-in-stream",
        "served",
        "server.py",
        "        given = count\n",
        "        given = count\n        await asyncio.sleep(0.01)\n",
        ("`stream`",),
    ),
    JobPlant(
        "log-every-token",
        "served",
        "server.py",
        "def event(content):\n",
        "def event(content):\n    for _ in range(60):\n        json.loads(json.dumps(content, indent=2))\n",
        ("`event`",),
    ),
    JobPlant(
        "copy-weights",
        "served",
        "engine.py",
        "        scores = self.model(",
        "        [weight.clone() for weight in self.model.parameters() for _ in range(6)]\n        scores = self.model(",
        ("`Engine.step`",),
    ),
    JobPlant(
        "all-reduce-twice",
        "trained",
        "train.py",
        "    loss.backward()\n",
        "    dist.all_reduce(batch[:1].clone())\n    loss.backward()\n",
        ("1 more `allreduce` in each rank",),
    ),
    JobPlant(
        "one-rank-more",
        "trained",
        "network.py",
        "    return batch * 0.5\n",
        "    for _ in range(20_000 * rank):\n        batch.size(0)\n    return batch * 0.5\n",
        ("`augment`", "`rank 1`"),
    ),
    JobPlant(
        "loss-in-numpy",
        "trained",
        "network.py",
        "    return outputs.square().mean()\n",
        "    sum(sum(row) for row in outputs.detach().tolist())\n    return outputs.square().mean()\n",
        ("`loss_of`",),
    ),
)
