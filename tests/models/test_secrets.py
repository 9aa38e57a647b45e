"""Secrets of models behind a network: no message shows one, in whatever form the server repeats it."""

from __future__ import annotations

import base64
import html
import json
import traceback
from collections.abc import Callable, Generator
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_servers import Asked, grpc_server, http_server, inference
from parsimon.errors import InputError, ModelError, OutageError
from parsimon.models import HttpModel, Request, RequestPolicy, as_model
from parsimon.models.remote.base import HEADERS
from parsimon.models.remote.redaction import Redactor
from small_model import IMAGES, linear

TOKEN = 'k3y/with+signs"and\\slashes=0123456789abcdef'
LONG = "".join(f"{number:04x}" for number in range(0x5A31, 0x5A31 + 60))  # 240 characters, no run of them twice


def shown(error: BaseException) -> str:
    """All that a user can see of an error: its message, and those that it is chained to, even if suppressed."""
    seen = ["".join(traceback.format_exception(error))]
    while (inner := error.__cause__ or error.__context__) is not None:
        seen.append(str(inner))
        error = inner
    return "\n".join(seen)


def longest_shared(text: str, secret: str) -> int:
    """The length of the longest run of a secret in a text, found by trying all."""
    return max(
        (
            end - start
            for start in range(len(secret))
            for end in range(start, len(secret) + 1)
            if secret[start:end] in text
        ),
        default=0,
    )


def classify_there(_: Any) -> Generator[Request, bytes, Any]:
    return json.loads((yield Request("http://models.example.org/classify?a=1", b"")))


def test_a_proxy_of_the_environment_is_used_and_its_password_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Asked] = []
    password = "swordfish-0123456789"

    def reply(asked: Asked) -> tuple[int, bytes]:
        seen.append(asked)
        scores = json.dumps(linear(IMAGES[:1]).tolist()).encode()
        return (200, scores) if len(seen) == 1 else (403, str(asked.headers).encode() + password.encode())

    with http_server(reply) as port:
        monkeypatch.setenv("http_proxy", f"http://user:{password}@127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        model = HttpModel(classify_there)
        model(IMAGES[:1])
        with pytest.raises(ModelError, match="403") as caught:
            model(IMAGES[:1])
    assert seen[0].path == "http://models.example.org/classify?a=1"
    assert base64.b64decode(seen[0].headers["proxy-authorization"].split()[1]).decode() == f"user:{password}"
    assert longest_shared(shown(caught.value), password) < 8
    assert seen[1].headers["proxy-authorization"].split()[1] not in shown(caught.value)


def test_https_goes_through_a_tunnel_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    def classify(_: Any) -> Generator[Request, bytes, Any]:
        return json.loads((yield Request("https://models.example.org/classify", b"")))

    with http_server(lambda _: (200, b"")) as port:  # which refuses to be a tunnel
        monkeypatch.setenv("https_proxy", f"127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(OutageError, match="Tunnel connection failed: 501"):
            HttpModel(classify, RequestPolicy(batch=1, patience=0.01))(IMAGES[:1])


@pytest.mark.parametrize(("variable", "value"), [("http_proxy", "http://127.0.0.1:9"), ("no_proxy", "127.0.0.1")])
def test_this_machine_and_what_no_proxy_names_are_queried_directly(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.setenv(variable, value)
    with http_server(inference(linear)) as port:
        as_model(f"http://127.0.0.1:{port}/v2/models/m?patience=1")(IMAGES)


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "json": lambda secret: json.dumps(secret)[1:-1],
    "json of another kind": lambda secret: json.dumps(secret)[1:-1].replace("/", "\\/").replace("+", "\\u002b"),
    "json in capitals": lambda secret: "".join(f"\\u{ord(each):04X}" for each in secret),
    "json twice": lambda secret: json.dumps(json.dumps(secret)),
    "address": lambda secret: quote(secret, safe=""),
    "address in small letters": lambda secret: "".join(f"%{ord(each):02x}" for each in secret),
    "address twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "form": quote_plus,
    "html": html.escape,
    "python": repr,
    "bytes": lambda secret: repr(secret.encode()),
    "capitals": str.upper,
    "two lines": lambda secret: f"{secret[:20]}\r\n {secret[20:]}",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_hidden_in_every_form(form: str) -> None:
    redacted = Redactor()
    redacted.learn({"X-Api-Key": TOKEN})
    text = redacted(f"wrong key <{FORMS[form](TOKEN)}> in your request")
    assert text.startswith("wrong key <")
    assert text.endswith("> in your request")
    assert "***" in text
    assert longest_shared(text.lower(), "0123456789abcdef") < 4


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="*"), min_size=8, max_size=40),
    st.sampled_from(sorted(FORMS)),
    st.text(max_size=20),
    st.text(max_size=20),
    st.data(),
)
def test_no_run_of_8_characters_is_shown(secret: str, form: str, before: str, after: str, data: Any) -> None:
    start = data.draw(st.integers(0, len(secret) - 8))
    end = data.draw(st.integers(start + 8, len(secret)))
    redacted = Redactor()
    redacted.learn({"authorization": f"Bearer {secret}"})
    assert secret[start:end] not in redacted(before + secret[start:end] + after)
    assert secret not in redacted(f"{before}{FORMS[form](secret)}{after}")


@given(st.text(max_size=100))
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    redacted = Redactor()
    redacted.learn({"authorization": "Bearer 5f3c9a7e1b2d4c68", "content-type": "application/json"})
    assert redacted(text) == "".join(each if each.isprintable() else " " for each in text)
    assert redacted("expected application/json") == "expected application/json"


@pytest.mark.parametrize(
    ("headers", "url", "said"),
    [
        ({"Authorization": "Basic " + base64.b64encode(b"me:swordfish").decode()}, "", "wrong password swordfish"),
        ({"authorization": "Basic " + base64.b64encode(b"me:swordfish").decode()}, "", "me:swordfish"),
        ({"Cookie": "a=1; session=swordfish; b=2"}, "", "the session swordfish has ended"),
        ({"Cookie": "a=1; session=fish7"}, "", "the session fish7 has ended"),
        ({b"X-Api-Key": b"swordfish"}, "", "swordfish"),
        ({}, "https://host/?key=swordfish&top=5", "the key swordfish"),
        ({}, "https://host/?swordfish", "the key swordfish"),
        ({}, "https://host/?key=sword%2Ffish%2b", "the key sword/fish+"),
    ],
)
def test_parts_of_headers_and_queries_are_hidden(headers: Any, url: str, said: str) -> None:
    redacted = Redactor()
    redacted.learn(headers, url)
    assert "fish" not in redacted(said)


def test_only_the_latest_of_many_values_are_remembered() -> None:
    redacted = Redactor()
    for number in range(5000):
        redacted.learn({"X-Key": "the one that stays", "X-Signature": f"signature-{number:06}"})
    assert redacted("the one that stays, signature-004999") == "***, ***"
    assert len(redacted._values) <= 1024


# --- what a server says ---------------------------------------------------------------------------------------------


def asking(port: int, headers: dict[str, str], query: str = "") -> Callable[[Any], Generator[Request, bytes, Any]]:
    def classify(_: Any) -> Generator[Request, bytes, Any]:
        yield Request(f"http://127.0.0.1:{port}/{query}", b"", headers)
        raise ValueError(f"what is this? {headers} {query}")

    return classify


@pytest.mark.parametrize("status", [200, 302, 403, 404, 503])
@pytest.mark.parametrize("before", [0, 20, 100, 199, 480, 495])
def test_a_secret_is_not_cut_before_it_is_hidden(status: int, before: int) -> None:
    def reply(asked: Asked) -> tuple[int, bytes]:
        return status, b"x" * before + asked.headers["authorization"].encode()

    with http_server(reply) as port:
        model = HttpModel(asking(port, {"Authorization": f"Bearer {LONG}"}), RequestPolicy(batch=None, patience=0.2))
        with pytest.raises(ModelError) as caught:
            model(IMAGES)
    assert longest_shared(shown(caught.value), LONG) < 8
    assert len(str(caught.value)) < 800


def test_a_key_in_an_address_is_hidden_when_the_server_repeats_it() -> None:
    with http_server(lambda asked: (400, f"cannot serve {asked.path}".encode())) as port:
        model = HttpModel(asking(port, {}, "?api_key=sword%2Ffish-and-chips"))
        with pytest.raises(ModelError, match=r"cannot serve /\?api_key=\*\*\*") as caught:
            model(IMAGES)
    assert "fish" not in shown(caught.value)


@pytest.mark.parametrize("headers", [{"X-Key": f"{LONG}\n"}, {"X-Key": f"ä€{LONG}"}, {"X-Key\n": LONG}])
def test_a_header_that_cannot_be_sent_is_not_shown(headers: Any) -> None:
    with http_server(lambda _: (200, b"")) as port, pytest.raises(ModelError, match="cannot be sent") as caught:
        HttpModel(asking(port, headers))(IMAGES)
    assert longest_shared(shown(caught.value), LONG) < 8


def test_what_the_function_raises_is_shown_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS, f"X-Key: {LONG}")

    def classify(_: Any) -> Any:
        raise KeyError(f"no model for {LONG}")

    with pytest.raises(ModelError, match=r"must yield a Request.*KeyError: 'no model for \*\*\*") as caught:
        HttpModel(classify)(IMAGES)
    assert longest_shared(shown(caught.value), LONG) < 8


def test_a_server_over_grpc_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    import grpc

    monkeypatch.setenv(HEADERS, f"Authorization: Bearer {LONG}")
    code = [grpc.StatusCode.PERMISSION_DENIED]

    def infer(_: Any, metadata: Any, context: Any) -> Any:
        context.abort(code[0], f"not {metadata['authorization'][:90]}")

    with grpc_server(infer) as port:
        model = as_model(f"grpc://127.0.0.1:{port}/m?patience=0.2")
        with pytest.raises(ModelError, match=rf"PERMISSION_DENIED\. Set.*{HEADERS}.*not \*\*\*") as caught:
            model(IMAGES)
        assert longest_shared(shown(caught.value), LONG) < 8
        code[0] = grpc.StatusCode.UNAVAILABLE
        with pytest.raises(OutageError, match=r"UNAVAILABLE, not \*\*\*") as caught:
            model(IMAGES)
        assert longest_shared(shown(caught.value), LONG) < 8


def test_headers_that_grpc_does_not_take_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS, f"X|Key: {LONG}")  # HTTP takes it
    with grpc_server(lambda images, *_: linear(images)) as port, pytest.raises(ModelError) as caught:
        as_model(f"grpc://127.0.0.1:{port}/m?patience=0.2")
    assert longest_shared(shown(caught.value), LONG) < 8


def test_a_description_that_repeats_a_secret_is_shown_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS, f"X-Key: {LONG}")

    def reply(asked: Asked) -> tuple[int, bytes]:
        status, body = inference(linear)(asked)
        return status, body.replace(b'"images"', b'"%s"' % LONG.encode()).replace(b"FP32", b"STRING")

    with http_server(reply) as port, pytest.raises(ModelError, match=r"has: \*\*\* STRING") as caught:
        as_model(f"http://127.0.0.1:{port}/v2/models/m")
    assert longest_shared(shown(caught.value), LONG) < 8


@pytest.mark.parametrize(
    "body", [b'{"inputs":[1]}', b'{"inputs":[{"name":"a"}]}', b'{"inputs":[{"name":"a","datatype":"b","shape":["c"]}]}']
)
def test_a_description_that_cannot_be_read_is_said_in_a_sentence(body: bytes) -> None:
    with http_server(lambda _: (200, body)) as port, pytest.raises(ModelError, match="description of the model cannot"):
        as_model(f"http://127.0.0.1:{port}/v2/models/m")


@pytest.mark.parametrize(
    "url",
    [
        "grpc://me:swordfish@host/m",
        "grpc://me:sword/fish@host/m",
        "grpc://me:swordfish@host:99999/m",
        "grpc://host/m?swordfish",
        "http://me:swordfish@host/v2/models/m?rate=1",
    ],
)
def test_what_may_be_a_key_in_an_address_is_not_shown(url: str) -> None:
    with pytest.raises(InputError) as caught:
        as_model(url)
    assert "fish" not in shown(caught.value)
    assert "me:" not in shown(caught.value)
