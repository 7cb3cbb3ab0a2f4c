"""Answers each message with FastStream: ``fast.py SERVERS COUNT`` ends after COUNT messages."""

import asyncio
import sys

from faststream import FastStream
from faststream.confluent import KafkaBroker

servers, left = sys.argv[1], int(sys.argv[2])
broker = KafkaBroker(servers)
app = FastStream(broker)


@broker.subscriber("orders", group_id="fast", auto_offset_reset="earliest")
@broker.publisher("answers")
async def handle(text: str) -> str:
    global left
    left -= 1
    if not left:
        app.exit()
    return text.upper()


asyncio.run(app.run())
