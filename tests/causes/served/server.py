"""OpenAI's completions API over plain asyncio."""

import asyncio
import json
import sys

import torch
from engine import Engine, Request
from model import Model
from tokenizer import WORDS, decode, encode

torch.set_num_threads(1)
HEADERS = "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"


async def handle(reader, writer, engine):
    try:
        while request := await reader.readline():
            length = 0
            while (header := await reader.readline()) not in (b"\r\n", b""):
                name, _, value = header.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
            body = await reader.readexactly(length)
            await answer(request.split()[1].decode(), body, writer, engine)
    except ConnectionError:
        pass
    finally:
        writer.close()


async def answer(path, body, writer, engine):
    if path != "/v1/completions":
        known = {"/health": "{}", "/v1/models": '{"data": [{"id": "tiny"}]}'}
        writer.write(HEADERS.format(kind="application/json").encode())
        await send(writer, known.get(path, "{}"))
        await send(writer, "")
        return
    asked = json.loads(body)
    writer.write(HEADERS.format(kind="text/event-stream").encode())
    request = Request(encode(asked["prompt"]), asked["max_tokens"])
    await engine.waiting.put(request)
    await stream(request, writer)


async def stream(request, writer):
    given = 0
    while given < request.wanted:
        count = await request.ready.get()
        text = decode(request.written[:count], given)
        given = count
        await send(writer, event({"choices": [{"text": text, "index": 0}]}))
    usage = {"prompt_tokens": len(request.tokens), "completion_tokens": given}
    await send(writer, event({"choices": [], "usage": usage}))
    await send(writer, "data: [DONE]\n\n")
    await send(writer, "")


def event(content):
    return f"data: {json.dumps(content)}\n\n"


async def send(writer, text):
    data = text.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


async def main():
    torch.manual_seed(0)
    engine = Engine(Model(WORDS).eval())
    server = await asyncio.start_server(lambda r, w: handle(r, w, engine), "127.0.0.1", int(sys.argv[1]))
    await asyncio.gather(server.serve_forever(), engine.run())


if __name__ == "__main__":
    asyncio.run(main())
