"""The heads of answers, as the two HTTP servers under the engines write them.

uvicorn (vLLM, SGLang, TensorRT-LLM) keeps a connection and says nothing of it; cpp-httplib (llama.cpp) says ``keep-alive`` and closes
nearly every connection after a stream all the same.
"""

from __future__ import annotations

from http import HTTPStatus


def phrase(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase}"


def uvicorn_head(*, stream: bool, status: int, length: int, close: bool, date: str, media: str = "") -> bytes:
    lines = [f"HTTP/1.1 {phrase(status)}", f"date: {date}", "server: uvicorn"]
    if stream:
        lines.append("content-type: text/event-stream; charset=utf-8")
    else:
        lines += [f"content-length: {length}", f"content-type: {media or 'application/json'}"]
    lines.append("vary: Origin")
    if close:
        lines.append("connection: close")
    if stream:
        lines.append("transfer-encoding: chunked")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def httplib_head(*, stream: bool, status: int, length: int, close: bool, media: str = "") -> bytes:
    lines = [f"HTTP/1.1 {phrase(status)}", "Server: llama.cpp", "Access-Control-Allow-Origin: "]
    if stream:
        lines += ["X-Accel-Buffering: no", "Content-Type: text/event-stream", "Transfer-Encoding: chunked"]
    else:
        lines += [f"Content-Type: {media or 'application/json; charset=utf-8'}", f"Content-Length: {length}"]
    lines.append("Connection: close" if close else "Keep-Alive: timeout=5, max=100")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
