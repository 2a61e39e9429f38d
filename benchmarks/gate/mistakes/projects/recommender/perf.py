import torch
from ranking import Ranking

from perfgate import Workload

recommender = Workload(
    build=Ranking,
    inputs=lambda batch, seed: torch.full((batch,), float(seed)),
    call=lambda ranking, bias: ranking.rank(bias),
    batch=1,
)
