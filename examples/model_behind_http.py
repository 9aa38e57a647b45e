"""Attack a model behind an HTTP endpoint with its own format. You write one function: `classify`."""

import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

import parsimon
from parsimon import zoo
from parsimon.models import HttpModel, Request, RequestPolicy, as_model

network = as_model("standard")


class Service(BaseHTTPRequestHandler):
    """A stand-in for your service."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        pixels = np.frombuffer(self.rfile.read(int(self.headers["content-length"])), np.float32)
        body = json.dumps({"scores": network(pixels.reshape(-1, 3, 32, 32)).tolist()}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/classify"

    def classify(images: np.ndarray) -> Generator[Request, bytes, list[list[float]]]:
        body = yield Request(address, images.tobytes())
        scores: list[list[float]] = json.loads(body)["scores"]
        return scores

    images, labels = zoo.images()
    model = HttpModel(classify, RequestPolicy(batch=8, in_flight=2))
    result = parsimon.attack(model, images[:4], labels[:4], eps=8 / 255, budget=60)
    print(result)
    assert result.traffic is not None
    assert result.traffic.answered >= result.queries.sum()
    server.shutdown()
