"""Addresses and settings of models behind a network that cannot be used: each is refused in a sentence, at once."""

from __future__ import annotations

import math
import sys
from collections.abc import Generator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsimon.errors import InputError, MissingExtraError, ModelError, OutageError
from parsimon.models import HttpModel, Request, RequestPolicy, as_model
from parsimon.models.remote.address import server_address, split_url
from parsimon.models.remote.base import HEADERS, headers_from_environment
from parsimon.models.remote.server import ServerSettings, open_server, read_settings
from small_model import IMAGES

HOST = "SCHEME://HOST:PORT/"
ASCII = "printable ASCII characters without spaces"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://[::1", HOST),
        ("http://::1]/v2/models/m", HOST),
        ("http://[::1]x/v2/models/m", HOST),
        ("http://[hello]/v2/models/m", HOST),
        ("http://host:99999/v2/models/m", HOST),
        ("http://host:0/v2/models/m", HOST),
        ("http://host:-1/v2/models/m", HOST),
        ("grpc://host:abc/m", HOST),
        ("grpc://host:80:80/m", HOST),
        ("grpc://:80/m", HOST),
        ("grpc:///m", HOST),
        ("grpc://", HOST),
        ("grpc://a..b/m", HOST),
        (f"grpc://{'a' * 64}/m", HOST),
        (f"grpc://{'a.' * 200}b/m", HOST),
        ("grpc://ho^st/m", HOST),
        ("grpc://ho st/m", ASCII),
        ("grpc://host/a model", ASCII),
        ("grpc://host/m\0", ASCII),
        ("grpc://host/m\n", ASCII),
        ("grpc://ho\tst/m", ASCII),
        ("grpc://hôst/m", ASCII),
        ("grpc://host/modèle", ASCII),
        ("grpc://host/m?input=\x7f", ASCII),
        ("grpc://host/m#part", "grpc://HOST:PORT/MODEL"),
        (f"grpc://host/{'m' * 10_000}", "at most 2,000 characters"),
        (f"grpc://host/{'m/' * 10_000}", "at most 2,000 characters"),
        ("grpc://host/m?timeout=nan", "timeout must be a number from"),
        ("grpc://host/m?timeout=inf", "timeout must be a number from"),
        ("grpc://host/m?timeout=1e9999", "timeout must be a number from"),
        ("grpc://host/m?timeout=0", "timeout must be a number from"),
        ("grpc://host/m?timeout=1e-320", "timeout must be a number from"),
        ("grpc://host/m?patience=inf", "patience must be a number from"),
        ("grpc://host/m?rate=nan", "rate must be a number from"),
        ("grpc://host/m?rate=1e-320", "rate must be a number from"),
        ("grpc://host/m?rate=", "rate must be a number; got ''"),
        ("grpc://host/m?batch=1e9999", "batch must be a whole number; got '1e9999'"),
        ("grpc://host/m?batch=" + "9" * 10_000, "batch must be a whole number; got '999"),
        ("grpc://host/m?batch=" + "9" * 100, "batch must be a whole number, at most"),
        ("grpc://host/m?in_flight=1000000000", "in_flight must be a whole number, at most 1,000, since each"),
        ("grpc://host/m?input=" + "x" * 10_000, "input must be a name of at most"),
        ("grpc://host/m?" + "x" * 10_000 + "=1", "is unknown"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_in_a_sentence(url: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        open_server(url)
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


@given(st.sampled_from(["grpc", "grpcs", "http", "https"]), st.text(max_size=30))
def test_whatever_follows_a_scheme_is_an_address_or_refused(scheme: str, rest: str) -> None:
    try:
        address = server_address(split_url(f"{scheme}://{rest}"))
    except InputError:
        return
    name, _, port = address.host.rpartition(":")
    assert name
    assert 1 <= int(port) <= 65535


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("grpc://[::1]/m", "[::1]:8001"),
        ("http://[::1]:80/v2/models/m", "[::1]:80"),
        ("grpc://host:/m", "host:8001"),
        ("grpc://my_host.example.org./m", "my_host.example.org.:8001"),
    ],
)
def test_hosts_of_all_forms_get_a_port(url: str, host: str) -> None:
    assert server_address(split_url(url)).host == host


@pytest.mark.parametrize("name", ["batch", "in_flight", "rate", "timeout", "patience"])
@pytest.mark.parametrize(
    "value",
    [True, "1", b"1", [1], np.ones(1), np.ones(3), {}, 1j, object, math.nan, math.inf, -1, 0, 10**400, -(10**400)],
)
def test_a_policy_that_cannot_be_kept_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name} must be") as caught:
        RequestPolicy(**{name: value})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["in_flight", "timeout", "patience"])
def test_what_has_no_meaning_as_none_is_refused(name: str) -> None:
    settings: Any = {name: None}
    with pytest.raises(InputError, match=f"{name} must be"):
        RequestPolicy(**settings)


def test_numbers_of_numpy_and_fractions_are_numbers() -> None:
    RequestPolicy(batch=np.int64(3), in_flight=np.int32(2), rate=Fraction(1, 3), timeout=np.float32(2), patience=10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"classify": "a function"},
        {"policy": 3},
        {"files": ["png"]},
        {"top": "2", "classes": 10},
        {"top": True, "classes": 10},
        {"top": 2, "classes": 10**12},
        {"top": 2, "classes": 2.5},
    ],
)
def test_settings_of_an_endpoint_of_another_type_are_refused(settings: Any) -> None:
    with pytest.raises(InputError):
        HttpModel(**{"classify": print, **settings})


@pytest.mark.parametrize(
    "request_",
    [
        Request("http://[::1", b""),
        Request("http://host:99999/", b""),
        Request("http://host:abc/", b""),
        Request("http:///path", b""),
        Request("http://a..b/", b""),
        Request("http://host/a b", b""),
        Request("http://host/\0", b""),
        Request("http://hôst/", b""),
        Request("http://me:word@127.0.0.1:1/", b""),
        Request(None, b""),  # type: ignore[arg-type]
        Request(b"http://host/", b""),  # type: ignore[arg-type]
        Request("http://127.0.0.1:1/", b"", None),  # type: ignore[arg-type]
        Request("http://127.0.0.1:1/", b"", [("a", "b")]),  # type: ignore[arg-type]
    ],
)
def test_a_request_that_cannot_be_sent_is_the_functions_failure_and_not_tried_again(request_: Request) -> None:
    def classify(_: Any) -> Generator[Request, bytes, Any]:
        yield request_

    model = HttpModel(classify, RequestPolicy(batch=None))
    with pytest.raises(ModelError, match="the endpoint of classify must yield a Request"):
        model(IMAGES)
    assert model.traffic.attempted == len(IMAGES)


# --- settings and headers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "host", "path", "expected"),
    [
        ("grpc", "host:9", "/m", (False, "host:9", "m", "", "")),
        ("grpcs", "host", "/m/3", (True, "host:443", "m", "3", "")),
        ("grpc", "host", "/m", (False, "host:8001", "m", "", "")),
        ("http", "host", "/v2/models/m", (False, "host:8000", "m", "", "")),
        ("https", "host:9", "/a/b/v2/models/m/versions/2/infer", (True, "host:9", "m", "2", "/a/b")),
    ],
)
def test_addresses(scheme: str, host: str, path: str, expected: Any) -> None:
    assert server_address(split_url(f"{scheme}://{host}{path}"))[1:] == expected


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("grpc://host:1", "grpc://HOST:PORT/MODEL"),
        ("grpc:///m", "SCHEME://HOST:PORT"),
        ("http://host/classify", "HttpModel"),
        ("ftp://host/m", "begin with grpc, grpcs, http, https"),
        ("grpc://me:swordfish@host/m", HEADERS),
        ("grpc://host/m?token=swordfish", "'token'.*is unknown; known are batch, in_flight, rate, timeout, patience"),
        ("grpc://host/m?rate=1&rate=2", "given twice"),
        ("grpc://host/m?batch=many", "batch must be a whole number"),
        ("grpc://host/m?timeout=soon", "timeout must be a number"),
        ("grpc://host/m?layout=hwc", "layout must be one of nchw, nhwc"),
        ("grpc://host/m?fill=perhaps", "fill must be one of true, false"),
        ("grpc://host/m?in_flight=0", "in_flight must be a whole number, at least 1; got 0"),
        ("grpc://host/m?patience=-1", "patience must be a number from 0.001 to"),
        ("grpc://host/m?timeout=nan", "timeout must be a number from 0.001 to"),
    ],
)
def test_an_address_that_cannot_be_used_is_explained_without_its_secrets(url: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        as_model(url)
    assert "swordfish" not in str(caught.value)


def test_settings_are_written_after_a_question_mark() -> None:
    text = "batch=8&in_flight=2&rate=2.5&timeout=3&patience=9&layout=nhwc&input=x&output=y&fill=false"
    assert read_settings(text) == ServerSettings(8, 2, 2.5, 3, 9, "nhwc", "x", "y", False)
    assert read_settings("") == ServerSettings()


@pytest.mark.parametrize("text", ["Bearer swordfish", ": swordfish", "name:", "a name: swordfish", "name: swörd"])
def test_headers_of_another_form_are_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(HEADERS, text)
    with pytest.raises(InputError, match=f"{HEADERS} must hold lines") as caught:
        headers_from_environment()
    assert "sw" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "missing"), [("grpc://h/m", "tritonclient.grpc"), ("http://h/v2/models/m", "tritonclient.http")]
)
def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, url: str, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r"parsimon\[server\]"):
        as_model(url)


def test_nobody_at_an_address_is_said_soon() -> None:
    for url in ("grpc://127.0.0.1:1/m?patience=0.3", "http://127.0.0.1:1/v2/models/m?patience=0.3"):
        with pytest.raises(OutageError, match=r"127\.0\.0\.1:1/.* has not answered in 0\.3 seconds"):
            as_model(url)
