"""The endpoints of a server besides its API: health, models, sleep, counters and
profiler.

The counters are in the Prometheus text of its ``/metrics``, by the names that vLLM (V1)
and SGLang document as "Production Metrics"; a counter that a server lacks is absent.
vLLM and SGLang have ``POST /start_profile`` and ``/stop_profile``: vLLM writes to the
folder that its environment or settings name, SGLang to the folder in the request.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from perfgate.system.logs import one_line

_PROBE_SECONDS = 5.0
# The profiler is asked for on a server that may lack it, and a wrong path answers at
# once; but the engine may be slow to begin. Its recording is written before it answers.
_START_SECONDS, _STOP_SECONDS = 30.0, 300.0
# The servers' names, and the name in documents.
_NAMES: Mapping[str, str] = {
    "vllm:prefix_cache_queries_total": "prefix_queries",
    "sglang:prompt_tokens_total": "prefix_queries",
    "vllm:prefix_cache_hits_total": "prefix_hits",
    "sglang:cached_tokens_total": "prefix_hits",
    "vllm:spec_decode_num_draft_tokens_total": "drafted",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:iteration_tokens_total_count": "iterations",
}
_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)", re.MULTILINE)
_MOST_BYTES = 1 << 24
# The server is on this machine: a proxy of the environment would not find it.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServerEndpoints:
    """The endpoints of the server at ``url``."""

    def __init__(self, url: str) -> None:
        self.url = url

    def obstacle(self, path: str) -> str:
        """Why a path does not answer with success; empty if it does."""
        try:
            with _answer(self.url + path, _PROBE_SECONDS):
                return ""
        except urllib.error.HTTPError as error:
            return f"HTTP {error.code}"
        except OSError as error:
            return str(getattr(error, "reason", error))

    def first_model(self) -> str:
        """The model that the server lists first.

        Raises OSError, ValueError, LookupError or TypeError if it lists none.
        """
        models = self._read("/v1/models", 1 << 20)
        return str(msgspec.json.decode(models)["data"][0]["id"])

    def counters(self, path: str) -> dict[str, int]:
        """The server's own counters so far, summed over labels; empty if it has none."""
        try:
            return parse_counters(
                self._read(path, _MOST_BYTES).decode(errors="replace")
            )
        except OSError:
            return {}

    def post(
        self, path: str, seconds: float, settings: Mapping[str, object] | None = None
    ) -> None:
        """Post JSON, or an empty body. Raises OSError if the server does not do it."""
        request = urllib.request.Request(self.url + path, method="POST")  # noqa: S310 - our own http address
        if settings is not None:
            request.data = json.dumps(settings).encode()
            request.add_header("Content-Type", "application/json")
        with _answer(request, seconds):
            return

    def start_profiler(self, folder: Path) -> bool:
        """Whether the server has a profiler, which now records.

        It answers with an error without a profiler, or if none is configured.
        """
        settings = {
            "output_dir": str(folder),
            "activities": ["CPU", "GPU"],
            "with_stack": True,
            "record_shapes": True,
        }
        try:
            self.post("/start_profile", _START_SECONDS, settings)
        except OSError:
            return False
        return True

    def stop_profiler(self) -> None:
        with suppress(OSError):
            self.post("/stop_profile", _STOP_SECONDS, {})

    def _read(self, path: str, most: int) -> bytes:
        with _answer(self.url + path, _PROBE_SECONDS) as answer:
            content: bytes = answer.read(most)
            return content


@contextmanager
def _answer(
    request: str | urllib.request.Request, seconds: float
) -> Iterator[http.client.HTTPResponse]:
    """The successful answer to a request. Raises OSError for any other, also of a
    server that speaks something else than HTTP.
    """
    try:
        with _DIRECT.open(request, timeout=seconds) as answer:
            yield answer
    except OSError:  # a connection that ends early is an HTTPException too
        raise
    except http.client.HTTPException as error:
        raise OSError(f"its answer is not HTTP ({one_line(str(error))})") from error


def parse_counters(text: str) -> dict[str, int]:
    """Prometheus text format 0.0.4: ``name{labels} value``, a line each. Values that
    are not numbers are left out.
    """
    counters: dict[str, int] = {}
    for name, value in _LINE.findall(text):
        if ours := _NAMES.get(name):
            try:
                counters[ours] = counters.get(ours, 0) + int(float(value))
            except (ValueError, OverflowError):
                continue
    return counters
