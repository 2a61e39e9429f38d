"""The counters of a server, in the text that vLLM writes."""

from __future__ import annotations

from perfgate.conductor.sides.server.endpoints import parse_counters

TEXT = """\
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1200.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 800.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 5e+02
vllm:num_preemptions_total{engine="0",model_name="m"} NaN
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 64.0
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 900.0
"""


def test_parse__labels__are_summed_and_what_is_no_number_is_left_out() -> None:
    assert parse_counters(TEXT) == {"prefix_queries": 2000, "prefix_hits": 500, "iterations": 64}


def test_parse__anything_else__gives_none() -> None:
    assert parse_counters("<html>404</html>") == {}
