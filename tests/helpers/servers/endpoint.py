"""An HTTP endpoint with a format of its own, before the tests' linear classifier: PORT.

`/scores` takes images as text and gives logits. `/picture?top=K` takes a file of one image and gives the K most
probable classes by name. Nothing is taken without the right key in the header `x-key`.
"""

from __future__ import annotations

import io
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))
from small_model import linear, softmax

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        address = urlsplit(self.path)
        if self.headers.get("x-key") != "open sesame":
            self._answer(403, {"error": f"not {self.headers.get('x-key')}"})
        elif address.path == "/scores":
            images = np.array(json.loads(body), np.float32)
            self._answer(200, {"scores": linear(images).tolist()})
        elif address.path == "/picture":
            pixels = np.asarray(Image.open(io.BytesIO(body)), np.float32) / np.float32(255)
            (probabilities,) = softmax(pixels.transpose(2, 0, 1)[None])
            best = np.argsort(-probabilities)[: int(parse_qs(address.query)["top"][0])]
            told = [{"label": NAMES[each], "confidence": float(probabilities[each])} for each in best]
            self._answer(200, {"predictions": told})
        else:
            self._answer(404, {"error": "no such page"})

    def _answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
