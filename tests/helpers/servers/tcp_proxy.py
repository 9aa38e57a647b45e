"""A proxy before any server that breaks connections: see `faults.py` for its options.

Faults: reset (once the request has gone on), refused (before), half (of an answer), slow. A request is whatever the
client sends after the server has spoken, so an answer is broken at its first bytes.
"""

from __future__ import annotations

import asyncio
import socket
import struct

from faults import Faults, options_of

OPTIONS = options_of()
FAULTS = Faults(OPTIONS)
PIECE = 1 << 16


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", OPTIONS.to)
    turn = {"speaks": "server", "fault": None}

    async def requests() -> None:
        while piece := await reader.read(PIECE):
            if turn["speaks"] == "server" and len(piece) > 100:  # less is the protocol's own housekeeping
                turn.update(speaks="client", fault=FAULTS.draw())
                FAULTS.tell(fault=turn["fault"])
                if turn["fault"] == "refused":
                    return _reset(writer)
            upstream_writer.write(piece)
            await upstream_writer.drain()
        return None

    async def answers() -> None:
        while piece := await upstream_reader.read(PIECE):
            fault, turn["speaks"] = turn["fault"], "server"
            if len(piece) > 100 or fault is None:
                turn["fault"] = None
            else:
                fault = None
            if fault == "reset":
                return _reset(writer)
            if fault == "slow":
                await asyncio.sleep(OPTIONS.stall)
            writer.write(piece[: len(piece) // 2] if fault == "half" else piece)
            await writer.drain()
            if fault == "half":
                return None
        return None

    tasks = [asyncio.create_task(requests()), asyncio.create_task(answers())]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*done, *pending, return_exceptions=True)
    for each in (writer, upstream_writer):
        each.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", OPTIONS.listen)
    await server.serve_forever()


asyncio.run(main())
