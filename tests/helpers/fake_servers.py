"""Servers in this process that answer whatever a test wants, also nonsense."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Asked(NamedTuple):
    """An HTTP request, as it came."""

    path: str
    headers: Mapping[str, str]
    body: bytes


Reply = tuple[int, bytes]


@contextmanager
def http_server(reply: Callable[[Asked], Reply]) -> Iterator[int]:
    """Answer every request with what `reply` returns; the port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, body = reply(Asked(self.path, headers, self.rfile.read(int(headers.get("content-length", 0)))))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815  (the name that the base class calls)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


Infer = Callable[[NDArray[Any]], NDArray[Any]]


def inference(infer: Infer, datatype: str = "FP32", shape: tuple[int, ...] = (-1, 3, 8, 8)) -> Callable[[Asked], Reply]:
    """The Open Inference Protocol over HTTP, with tensors as text."""

    def reply(asked: Asked) -> Reply:
        if asked.path == "/v2":
            return 200, b'{"extensions":[]}'
        if asked.path.endswith("/config"):
            return 404, b"no such page"
        if not asked.path.endswith("/infer"):
            inputs = [{"name": "images", "datatype": datatype, "shape": shape}]
            outputs = [{"name": "scores", "datatype": "FP32", "shape": [-1, 10]}]
            return 200, json.dumps({"inputs": inputs, "outputs": outputs}).encode()
        (told,) = json.loads(asked.body)["inputs"]
        scores = infer(np.array(told["data"], np.float32).reshape(told["shape"]))
        kind = "FP32" if scores.dtype.kind == "f" else "INT64"
        output = {"name": "scores", "datatype": kind, "shape": scores.shape, "data": scores.ravel().tolist()}
        return 200, json.dumps({"model_name": "m", "outputs": [output]}).encode()

    return reply


@contextmanager
def grpc_server(infer: Callable[[NDArray[Any], Mapping[str, str], Any], NDArray[Any]]) -> Iterator[int]:
    """The Open Inference Protocol over gRPC; `infer` is given images, the request's metadata and its context."""
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    class Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
        def ModelMetadata(self, _: Any, __: Any) -> Any:  # noqa: N802  (the protocol's name)
            tensor = service_pb2.ModelMetadataResponse.TensorMetadata
            images = tensor(name="images", datatype="FP32", shape=[-1, 3, 8, 8])
            return service_pb2.ModelMetadataResponse(
                inputs=[images], outputs=[tensor(name="scores", datatype="FP32", shape=[-1, 10])]
            )

        def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802  (the protocol's name)
            images = np.frombuffer(request.raw_input_contents[0], np.float32).reshape(request.inputs[0].shape)
            scores = infer(images, dict(context.invocation_metadata()), context).astype(np.float32)
            answer = service_pb2.ModelInferResponse(raw_output_contents=[scores.tobytes()])
            answer.outputs.add(name="scores", datatype="FP32", shape=scores.shape)
            return answer

    server = grpc.server(ThreadPoolExecutor(8))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield int(port)
    finally:
        server.stop(None)
