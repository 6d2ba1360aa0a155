"""A streaming server whose true send times are known: each event carries the CLOCK_MONOTONIC time at which it was sent.

It waits until every stream has asked, answers all heads, and then sends one event after the other, round over the streams and
evenly in time, each by a write of its own (two events in one write would arrive in one read, and there would be nothing to
compare). It waits by spinning, so it needs a core for itself; how well it kept its rate is in its report. Blocking sockets and
one format operation an event keep it several times cheaper than any client.

    python -m bench.stream_server --streams 256 --rate 25000 --seconds 3   → {"port": …} at once, {"rate": …, …} at the end
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from time import monotonic_ns

from bench.harness import pin

# As vLLM 0.32 streams one token with return_token_ids: 235 bytes of JSON, plus the stamp.
EVENT = (
    b'data: {"id":"cmpl-a401e76f48b7ab92","object":"text_completion","created":1796008133,"model":"m","choices":[{"index":0,'
    b'"text":" name","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":[500]}],"t_ns":%020d}\n\n'
)
_CHUNK = b"%x\r\n" % len(EVENT % 0) + EVENT + b"\r\n"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
_SETTLE_NS = 300_000_000  # between the heads and the first event


def serve(listener: socket.socket, streams: int, rate: float, seconds: float) -> dict[str, float]:
    """One round. Raises ``ConnectionError`` if a client goes away."""
    connections = [listener.accept()[0] for _ in range(streams)]
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = b""
        while b"\r\n\r\n" not in request:
            request += connection.recv(65536)
    for connection in connections:
        connection.sendall(_HEAD)
    count = int(rate * seconds)
    period_ns = 1e9 / rate
    sends = [connection.send for connection in connections]
    started = monotonic_ns() + _SETTLE_NS
    worst = 0
    for i in range(count):
        due = started + int(i * period_ns)
        while (now := monotonic_ns()) < due:
            pass
        if now - due > worst:
            worst = now - due
        sends[i % streams](_CHUNK % now)
    span_s = (monotonic_ns() - started) / 1e9
    for connection in connections:
        connection.sendall(b"0\r\n\r\n")
    for connection in connections:
        connection.recv(1)  # until the client closes: a reset would take data with it
        connection.close()
    return {"chunks": count, "span_s": span_s, "rate": count / span_s, "late_ms_max": worst / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="events per second over all streams")
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    pin(0)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
        print(json.dumps(serve(listener, args.streams, args.rate, args.seconds)), flush=True)
    sys.stdout.close()


if __name__ == "__main__":
    main()
