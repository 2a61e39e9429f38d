"""OpenAI's completions over plain asyncio: ``python server.py PORT [close]``; with
``close`` no connection is kept.
"""

import asyncio
import json
import sys

import torch
from engine import Engine, Request, Watch
from tokenizer import decode, encode

torch.set_num_threads(1)
KNOWN = {"/health": "{}", "/v1/models": '{"data": [{"id": "tiny"}]}'}
closes = sys.argv[2:] == ["close"]


async def serve(reader, writer, engine):
    try:
        while request := await reader.readline():
            length = 0
            while (header := await reader.readline()) not in (b"\r\n", b""):
                name, _, value = header.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
            body = await reader.readexactly(length)
            path = request.split()[1].decode()
            await (
                complete(json.loads(body), writer, engine)
                if path == "/v1/completions"
                else tell(path, writer)
            )
            if closes:
                break
    except ConnectionError:
        pass
    finally:
        writer.close()


async def tell(path, writer):
    begin(writer, "application/json")
    send(writer, KNOWN.get(path, "{}"))
    send(writer, "")
    await writer.drain()


async def complete(asked, writer, engine):
    loop, tokens = asyncio.get_running_loop(), asyncio.Queue()
    request = Request(
        encode(asked["prompt"]),
        asked["max_tokens"],
        lambda token: loop.call_soon_threadsafe(tokens.put_nowait, token),
    )
    engine.waiting.put(request)
    begin(writer, "text/event-stream")
    for _ in range(request.wanted):
        send(
            writer,
            event({"choices": [{"text": decode(await tokens.get()), "index": 0}]}),
        )
        await writer.drain()
    send(
        writer,
        event(
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": len(request.tokens),
                    "completion_tokens": request.wanted,
                },
            }
        ),
    )
    send(writer, "data: [DONE]\n\n")
    send(writer, "")
    await writer.drain()


def begin(writer, kind):
    writer.write(
        f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )


def event(content):
    return f"data: {json.dumps(content)}\n\n"


def send(writer, text):
    data = text.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def main():
    engine = Engine()
    engine.start()
    Watch(engine).start()
    server = await asyncio.start_server(
        lambda r, w: serve(r, w, engine), "127.0.0.1", int(sys.argv[1])
    )
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
