"""A proxy before a gRPC server that injects faults: see `faults.py` for its options.

Faults: slow, garbage, nan, and any status of gRPC by its name.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from faults import Faults, options_of
from tritonclient.grpc import service_pb2

OPTIONS = options_of()
FAULTS = Faults(OPTIONS)
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
UPSTREAM = grpc.insecure_channel(f"127.0.0.1:{OPTIONS.to}", options=UNLIMITED)


class Forwarding(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Every method, as the bytes of its messages."""

    def service(self, details: Any) -> Any:
        method = details.method
        key = dict(details.invocation_metadata).get("authorization")

        def serve(message: bytes, context: Any) -> bytes:
            begun = time.monotonic()
            rows = 0
            if method.endswith("/ModelInfer"):
                rows = service_pb2.ModelInferRequest.FromString(message).inputs[0].shape[0]
            if OPTIONS.key is not None and key != OPTIONS.key:
                FAULTS.tell(rows=rows, fault="UNAUTHENTICATED", begun=begun)
                context.abort(grpc.StatusCode.UNAUTHENTICATED, f"wrong key: {key}")
            fault = FAULTS.draw() if rows else None
            FAULTS.tell(rows=rows, fault=fault, begun=begun)
            if fault is not None and hasattr(grpc.StatusCode, fault):
                context.abort(grpc.StatusCode[fault], "as was drawn")
            try:
                answer: bytes = UPSTREAM.unary_unary(method)(message)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())
            if fault == "slow":
                time.sleep(OPTIONS.stall)
            if fault == "garbage":
                return bytes(range(256))
            return _with_nan(answer) if fault == "nan" else answer

        return grpc.unary_unary_rpc_method_handler(serve)


def _with_nan(answer: bytes) -> bytes:
    message = service_pb2.ModelInferResponse.FromString(answer)
    if message.raw_output_contents:
        numbers = np.frombuffer(message.raw_output_contents[0], np.float32).copy()
        numbers[0] = np.nan
        message.raw_output_contents[0] = numbers.tobytes()
    else:
        message.outputs[0].contents.fp32_contents[0] = np.nan
    changed: bytes = message.SerializeToString()
    return changed


server = grpc.server(ThreadPoolExecutor(16), [Forwarding()], options=UNLIMITED)
address = f"127.0.0.1:{OPTIONS.listen}"
if OPTIONS.certificate:
    both = Path(OPTIONS.certificate).read_bytes()
    server.add_secure_port(address, grpc.ssl_server_credentials([(both, both)]))
else:
    server.add_insecure_port(address)
server.start()
server.wait_for_termination()
