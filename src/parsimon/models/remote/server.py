"""A model on an inference server with the Open Inference Protocol: Triton, KServe, MLServer and others.

Its name is its address, with settings after a question mark:

    grpc://localhost:8001/resnet
    grpcs://models.example.org/resnet/3?timeout=5&rate=20           version 3, over TLS
    https://models.example.org/v2/models/resnet?layout=nhwc

gRPC is fastest. Over HTTP, tensors are sent as bytes if the server offers that, else as text, which is slow.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, get_args, get_type_hints
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from parsimon.errors import InputError, ModelError, quote, require, whole_line
from parsimon.models.remote.address import Address, server_address, split_url
from parsimon.models.remote.base import (
    HEADERS,
    InvalidResponse,
    MissingModelError,
    RemoteModel,
    RequestPolicy,
    TransientError,
    as_bytes,
    checked_response,
)
from parsimon.models.remote.transport import Response

Layout = Literal["nchw", "nhwc"]

SCHEMES = ("grpc", "grpcs", "http", "https")

_TYPES = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "UINT8": np.uint8}
_LONGEST_NAME = 500  # of an input or an output
_CHANNELS = (1, 3)  # by which a layout is recognised
# Refusals that would be repeated.
_FINAL = {
    *("INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED"),
    *("FAILED_PRECONDITION", "OUT_OF_RANGE", "ALREADY_EXISTS"),
}


@dataclass(frozen=True)
class ServerSettings(RequestPolicy):
    """The request policy for a server, and the details that its description of the model leaves open.

    Attributes:
        layout: `nchw` (channels first) or `nhwc`; by default as the shape of the input suggests.
        input: The input's name, if the server does not list it.
        output: The output that holds the scores; by default the first one.
        fill: Whether every batch is padded to one size, so that results do not depend on rounding that differs between
            batch sizes. Without it, the server only gets the queries of a search.
    """

    layout: Layout | None = None
    input: str | None = None
    output: str | None = None
    fill: bool = True


class Tensor(NamedTuple):
    """An input or an output, as a server describes it; a side of -1 is free."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class Description(NamedTuple):
    """A server's description of a model."""

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    largest_batch: int | None = None


class ServerModel(RemoteModel):
    """A model on a server; images are sent in its layout and type."""

    def __init__(self, place: str, settings: ServerSettings, *, http: bool = False) -> None:
        super().__init__(place, settings, http=http)
        self.fixed_batch = settings.fill
        self._first_contact(lambda: self._configure(place, settings))

    def _configure(self, place: str, settings: ServerSettings) -> None:
        described = self._describe()
        self._input = _input(described.inputs, settings, place)
        self._output = _output(described.outputs, settings, place)
        batch, *shape = self._input.shape
        self._layout = settings.layout or _layout(shape)
        self._rows = batch if batch > 0 else None  # per request, if the model has a fixed batch size
        sides = [side if side > 0 else None for side in shape]
        self.image_shape = tuple(sides if self._layout == "nchw" else (sides[2], sides[0], sides[1]))
        self.eight_bit_only = self._input.datatype == "UINT8"
        limits = [each for each in (settings.batch, described.largest_batch, self._rows) if each and each > 0]
        self._policy = replace(settings, batch=min(limits, default=None))

    @abstractmethod
    def _describe(self) -> Description:
        """Query the inputs and outputs of the model."""

    @abstractmethod
    def _infer(self, tensor: NDArray[Any]) -> NDArray[Any]:
        """Query the output for an input, once."""

    def _attempt(self, images: NDArray[np.float32]) -> NDArray[Any]:
        tensor: NDArray[Any] = images if self._layout == "nchw" else images.transpose(0, 2, 3, 1)
        if self.eight_bit_only:
            tensor = as_bytes(tensor)
        if self._rows is not None and len(tensor) < self._rows:
            tensor = np.concatenate([tensor, np.repeat(tensor[:1], self._rows - len(tensor), axis=0)])
        tensor = np.ascontiguousarray(tensor, _TYPES[self._input.datatype])
        try:
            scores = self._infer(tensor)
        except MissingModelError as error:  # it existed at first, so the server is being restarted
            raise TransientError(str(error)) from error
        return checked_response(scores, len(tensor))[: len(images)]


def _input(inputs: Sequence[Tensor], settings: ServerSettings, place: str) -> Tensor:
    """Return the input for images, as far as the server describes it."""
    if settings.input is not None:
        inputs = [each for each in inputs if each.name == settings.input] or [Tensor(settings.input, "FP32", (-1,) * 4)]
    found = ", ".join(f"{name} {datatype} {list(shape)}" for name, datatype, shape in inputs) or "none"
    if len(inputs) != 1 or inputs[0].datatype not in _TYPES or len(inputs[0].shape) != 4:
        raise ModelError(
            f"the model must have one input for images, of {', '.join(_TYPES)}, with four sides; {place} has: {found}. "
            "If the server lists none, name it with ?input=NAME"
        )
    return inputs[0]


def _output(outputs: Sequence[Tensor], settings: ServerSettings, place: str) -> str | None:
    names = [each.name for each in outputs]
    if settings.output is not None and names and settings.output not in names:
        raise InputError(f"{place} has the outputs {', '.join(names)}; got output={settings.output}")
    return settings.output or next(iter(names), None)


def _layout(shape: Sequence[int]) -> Layout:
    return "nhwc" if shape[2] in _CHANNELS and shape[0] not in _CHANNELS else "nchw"


class GrpcModel(ServerModel):
    """A model on a server, over gRPC."""

    def __init__(self, address: Address, settings: ServerSettings) -> None:
        self._grpc = require("tritonclient.grpc", "server")
        self._model, self._version = address.model, address.version
        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.enable_retries", 0),  # retries are made and counted here
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        self._client = self._grpc.InferenceServerClient(
            address.host,
            ssl=address.secure,
            root_certificates=os.environ.get("SSL_CERT_FILE") if address.secure else None,
            channel_args=options,
        )
        super().__init__(address.place, settings)

    def _describe(self) -> Description:
        metadata = self._call("get_model_metadata", self._model, self._version)
        inputs, outputs = (
            [Tensor(each.name, each.datatype, tuple(each.shape)) for each in tensors]
            for tensors in (metadata.inputs, metadata.outputs)
        )
        try:
            config = self._call("get_model_config", self._model, self._version).config
        except ModelError:  # only Triton has it
            return Description(inputs, outputs)
        return Description(inputs, outputs, config.max_batch_size or None)

    def _infer(self, tensor: NDArray[Any]) -> NDArray[Any]:
        request = self._grpc.InferInput(self._input.name, tensor.shape, self._input.datatype)
        request.set_data_from_numpy(tensor)
        outputs = [self._grpc.InferRequestedOutput(self._output)] if self._output else None
        answer = self._call("infer", self._model, [request], self._version, outputs)
        names = [each.name for each in answer.get_response().outputs]
        return _scores(answer, self._output or next(iter(names), ""))

    def _after_fork(self) -> None:
        raise ModelError(
            f"{self._place} was opened in another process, and gRPC does not work in a fork of it: open the model in "
            "this process, or start processes by the method `spawn`"
        )

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            timeout = self._policy.timeout
            return getattr(self._client, method)(*arguments, headers=self._headers, client_timeout=timeout)
        except self._grpc.InferenceServerException as error:
            raise _grpc_refusal(error, self._place) from error


def _grpc_refusal(error: Any, place: str) -> Exception:
    status = str(error.status()).removeprefix("StatusCode.")
    message = str(error.message())
    hint = ""
    if "larger than max" in message:
        status, hint = "OUT_OF_RANGE", ". Send fewer images per request: add batch=16 after a ?"
    if status in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        hint = f". Set the environment variable {HEADERS} to your credentials, such as `Authorization: Bearer KEY`"
    if "CERTIFICATE_VERIFY_FAILED" in f"{message}{error.debug_details()}":
        status, hint = "UNAUTHENTICATED", ". For a private authority, set SSL_CERT_FILE to its certificate"
    if status == "NOT_FOUND":
        return MissingModelError(f"{place} refuses: {status}, {message}")
    if status in _FINAL:
        return ModelError(f"{place} refuses: {status}{hint}. It says: {message}")
    return TransientError(f"{status}, {message}")


class RestModel(ServerModel):
    """A model on a server, over HTTP."""

    def __init__(self, address: Address, settings: ServerSettings) -> None:
        self._http = require("tritonclient.http", "server")
        version = f"/versions/{address.version}" if address.version else ""
        self._server = f"{'https' if address.secure else 'http'}://{address.host}{address.prefix}/v2"
        self._url = f"{self._server}/models/{address.model}{version}"
        self._binary = False
        super().__init__(address.place, settings, http=True)

    def _describe(self) -> Description:
        self._binary = "binary_tensor_data" in self._get(self._server).get("extensions", ())
        metadata = self._get(self._url)
        try:
            inputs, outputs = ([_tensor(each) for each in metadata.get(key) or ()] for key in ("inputs", "outputs"))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidResponse(f"the description of the model cannot be read: {whole_line(error)}") from error
        try:
            config = self._get(f"{self._url}/config")
        except ModelError:  # only Triton has it
            return Description(inputs, outputs)
        largest = config.get("max_batch_size")
        return Description(inputs, outputs, largest if isinstance(largest, int) else None)

    def _infer(self, tensor: NDArray[Any]) -> NDArray[Any]:
        request = self._http.InferInput(self._input.name, tensor.shape, self._input.datatype)
        request.set_data_from_numpy(tensor, binary_data=self._binary)
        outputs = [self._http.InferRequestedOutput(self._output, binary_data=self._binary)] if self._output else None
        client = self._http.InferenceServerClient
        body, header_length = client.generate_request_body([request], outputs)
        headers = {"content-type": "application/octet-stream" if header_length else "application/json"}
        if header_length:
            headers["inference-header-content-length"] = str(header_length)
        response = self._exchange("POST", f"{self._url}/infer", body, headers)
        try:
            length = response.headers.get("inference-header-content-length")
            answer = client.parse_response_body(response.body, header_length=length and int(length))
            name = self._output or answer.get_response()["outputs"][0]["name"]
        except Exception as error:  # a parser may raise anything
            raise InvalidResponse(f"it cannot be read: {whole_line(error)}") from error
        return _scores(answer, name)

    def _get(self, url: str) -> dict[str, Any]:
        try:
            described = json.loads(self._exchange("GET", url, None, {}).body)
        except ValueError as error:
            raise InvalidResponse(f"it is not JSON: {whole_line(error)}") from error
        if not isinstance(described, dict):
            raise ModelError(
                f"{url} does not describe a model of the Open Inference Protocol; it answers {quote(described)}"
            )
        return described

    def _exchange(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        return self._transport.exchange(method, url, body, {**headers, **self._headers}, self._policy.timeout)


def _scores(answer: Any, output: str) -> NDArray[Any]:
    try:
        scores = answer.as_numpy(output)
    except Exception as error:  # a parser may raise anything
        raise InvalidResponse(f"it cannot be read: {whole_line(error)}") from error
    if scores is None:
        raise InvalidResponse(f"it has no output {quote(output)}")
    return np.asarray(scores)


def _tensor(described: Mapping[str, Any]) -> Tensor:
    name, datatype, shape = (described[key] for key in ("name", "datatype", "shape"))
    return Tensor(str(name), str(datatype), tuple(int(side) for side in shape))


# --- addresses ------------------------------------------------------------------------------------------------------


def open_server(url: str) -> ServerModel:
    """Open the model at an address; see the top of this module."""
    parts = split_url(url)
    address = server_address(parts)
    settings = read_settings(parts.query)
    kind = GrpcModel if parts.scheme.startswith("grpc") else RestModel
    return kind(address, settings)


def read_settings(query: str) -> ServerSettings:
    """Read `timeout=5&layout=nhwc`. Messages do not repeat what is not understood: it may be a password."""
    known = [field.name for field in fields(ServerSettings)]
    hints = get_type_hints(ServerSettings)
    settings: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known or name in settings:
            problem = "is given twice" if name in settings else "is unknown"
            shown = quote(name) if value else "(not shown here)"  # a name without a value may be a password
            raise InputError(f"the setting {shown} after the ? of an address {problem}; known are {', '.join(known)}")
        settings[name] = _value(name, value, hints[name])
    return ServerSettings(**settings)


def _value(name: str, text: str, hint: Any) -> Any:
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    choices = [choice for kind in kinds for choice in get_args(kind)]
    if kinds == [bool]:
        choices = ["true", "false"]
    if choices:
        if text not in choices:
            raise InputError(f"{name} must be one of {', '.join(choices)}; got {quote(text)}")
        return text == "true" if kinds == [bool] else text
    if kinds == [str] and len(text) > _LONGEST_NAME:
        raise InputError(f"{name} must be a name of at most {_LONGEST_NAME} characters; got {quote(text)}")
    try:
        return kinds[0](text)
    except ValueError:
        kind = "a whole number" if kinds == [int] else "a number"
        raise InputError(f"{name} must be {kind}; got {quote(text)}") from None
