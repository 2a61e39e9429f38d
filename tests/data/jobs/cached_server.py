"""A server of nothing but asyncio, with a prefix cache: ``python cached_server.py PORT SECONDS_OF_A_PROMPT_WORD``.

It streams completions, rejects fields that it does not know, and closes a connection that it announced to keep open.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

KNOWN = {"model", "prompt", "max_tokens", "stream", "stream_options", "temperature", "seed"}
BLOCK = 4
SECONDS_OF_A_TOKEN = 0.002


class Server:
    def __init__(self, seconds_of_a_word: float) -> None:
        self._seconds = seconds_of_a_word
        self._seen: set[tuple[str, ...]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line, *headers = head.decode().split("\r\n")
                length = next((int(h.split(":")[1]) for h in headers if h.lower().startswith("content-length")), 0)
                body = await reader.readexactly(length)
                if line.startswith("POST /v1/completions"):
                    await self._complete(json.loads(body), writer)
                    await reader.readexactly(1)  # the next request finds the connection closed
                    return
                answer(writer, 200 if line.startswith("GET /health") else 404, {})
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _complete(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if unknown := sorted(body.keys() - KNOWN):
            detail = [{"type": "extra_forbidden", "loc": ["body", name], "input": body[name]} for name in unknown]
            answer(writer, 422, {"detail": detail})
            return
        words = body["prompt"].split()
        cached = self._cached(words)
        await asyncio.sleep(self._seconds * (len(words) - cached))
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
            b"Connection: keep-alive\r\nKeep-Alive: timeout=5, max=100\r\n\r\n"
        )
        tokens = body["max_tokens"]
        for number in range(tokens):
            reason = "length" if number == tokens - 1 else None
            stream(writer, json.dumps({"choices": [{"text": f"w{number} ", "finish_reason": reason}]}))
            await asyncio.sleep(SECONDS_OF_A_TOKEN)
        details = {"cached_tokens": cached}
        usage = {"prompt_tokens": len(words), "completion_tokens": tokens, "prompt_tokens_details": details}
        stream(writer, json.dumps({"choices": [], "usage": usage}))
        stream(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _cached(self, words: list[str]) -> int:
        """The words of whole blocks at the beginning that an earlier prompt had too; these are seen from now on."""
        prefixes = [tuple(words[:end]) for end in range(BLOCK, len(words), BLOCK)]
        cached = next((number for number, prefix in enumerate(prefixes) if prefix not in self._seen), len(prefixes))
        self._seen.update(prefixes)
        return BLOCK * cached


def answer(writer: asyncio.StreamWriter, status: int, value: dict[str, Any]) -> None:
    body = json.dumps(value).encode()
    writer.write(f"HTTP/1.1 {status} -\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def stream(writer: asyncio.StreamWriter, data: str) -> None:
    event = f"data: {data}\n\n".encode()
    writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")


async def main() -> None:
    server = await asyncio.start_server(Server(float(sys.argv[2])).serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
