"""Count the images that an endpoint would bill, with an endpoint on this machine.

From a shell, in this folder: parsimon evaluate billed_endpoint:build --images 10 --budget 50 --eight-bit
"""

import atexit
import io
import json
import threading
from collections.abc import Generator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from PIL import Image

import parsimon
from parsimon import zoo
from parsimon.models import HttpModel, Request, as_model

network = as_model("robust")
sent: list[int] = []  # images, one entry per request


class Endpoint(BaseHTTPRequestHandler):
    """Stands in for the provider: one PNG file in, scores out."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        picture = Image.open(io.BytesIO(self.rfile.read(int(self.headers["content-length"]))))
        pixels = np.asarray(picture, np.float32).transpose(2, 0, 1)[None] / np.float32(255)
        sent.append(len(pixels))
        body = json.dumps(network(pixels)[0].tolist()).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@cache
def address() -> str:
    """Start the endpoint, once, and return its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


def classify(files: list[bytes]) -> Generator[Request, bytes, list[list[float]]]:
    """Send one file, and return its scores."""
    body = yield Request(address(), files[0], {"content-type": "image/png"})
    return [json.loads(body)]


def build() -> HttpModel:
    """Return the model for `--model billed_endpoint:build`."""
    atexit.unregister(bill)
    atexit.register(bill)
    return HttpModel(classify, files="png")


def bill() -> None:
    """Print what the endpoint counted."""
    print(f"The endpoint was sent {sum(sent):,} images.")


if __name__ == "__main__":
    images, labels = (array[:6] for array in zoo.images())
    evaluation = parsimon.evaluate(build(), images, labels, eps=8 / 255, budget=20, eight_bit=True)
    charged = int(evaluation.queries.sum())
    print(f"Queries charged: {charged:,}.")
    assert charged < sum(sent) <= charged + 4 * len(images) + 8
