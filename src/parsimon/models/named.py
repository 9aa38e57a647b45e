"""Models by name: in the zoo, on a hub, in a file, at an address, or built by a function."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from pathlib import Path
from typing import Any

from parsimon import catalogue
from parsimon.catalogue import entries
from parsimon.errors import (
    InputError,
    ModelError,
    ParsimonError,
    check_name,
    did_you_mean,
    first_line,
    quote,
    unknown_name,
    users_place,
)
from parsimon.models import hubs

_MODEL_FILES = ("onnx", "pt", "pth", "pkl", "h5")  # endings


def open_model(name: str) -> Any:
    """Open a model by its name.

    Names are `robust`, `resnet-50`, `model.onnx`, `grpc://localhost:8001/resnet` (see `models.remote.server`),
    `hf:microsoft/resnet-50` (see `models.hubs`), or `package.module:function`, which is called.
    """
    check_name("a model", name)
    try:
        return _open(name)
    except OSError as error:  # a name that no file can have
        if isinstance(error, ParsimonError):
            raise
        raise InputError(f"there is no model {quote(name)}: {error.strerror}") from error


def needs_no_code(name: str) -> bool:
    """Return whether a model can be opened from its name or file alone, without the user's code or a server."""
    if known := entries.parse(name):
        return known[0].is_installed
    return name in catalogue.NAMES or hubs.is_named(name) or (Path(name).suffix == ".onnx" and Path(name).is_file())


def _open(name: str) -> Any:
    if name in catalogue.networks():
        return catalogue.path(name)
    if "://" in name:
        return _open_address(name)
    if hubs.is_named(name):
        return hubs.open_named(name)
    if ":" in name and not Path(name).exists():
        return _build(*name.rsplit(":", 1))
    if hint := _code_hint(name):
        raise InputError(f"there is no model {quote(name)}: {hint}")
    if name and (Path(name).exists() or Path(name).suffix):
        return Path(name)
    hint = did_you_mean(name, catalogue.networks())
    raise InputError(
        f"there is no model {quote(name)}{f'{hint} You can' if hint else ':'} give a bundled network "
        f"({', '.join(catalogue.NAMES)}), one of `parsimon zoo`, the path of an ONNX file, a model of a hub "
        f"({', '.join(hubs.FORMS)}), grpc://HOST:PORT/MODEL for one behind a server, or package.module:function for a "
        "function that returns it"
    )


def _takes_nothing(function: Any) -> bool:
    """Return whether a function can be called without arguments; a torch module is a model, not a function."""
    if hasattr(function, "state_dict") and not isinstance(function, type):
        return False
    try:
        inspect.signature(function).bind()
    except TypeError:
        return not callable(function)  # calling it says what it is
    except ValueError:  # built-in functions may have no signature
        return True
    return True


def _open_address(name: str) -> Any:
    from parsimon.models.remote.server import SCHEMES, open_server

    scheme = name.partition("://")[0]
    if scheme not in SCHEMES:
        raise InputError(f"the address of a model must begin with {', '.join(SCHEMES)} and ://; got {scheme}://")
    return open_server(name)


def _code_hint(name: str) -> str:
    """Return how to name a function of the user's code, where its file is named, or a dot stands for the colon."""
    path = Path(name)
    if path.suffix == ".py":
        return f"write {path.stem}:FUNCTION, with a function of {path.name} that takes no arguments and returns a model"
    module, _, function = name.rpartition(".")
    file = path.exists() or function in _MODEL_FILES
    if function.isidentifier() and not file and _is_module(module):
        return f"did you mean {module}:{function}?"
    return ""


def _is_module(name: str) -> bool:
    """Return whether a module can be imported; it is not imported, but the packages that it is in are."""
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except (Exception, SystemExit):  # the user's packages may raise anything
        return False


def _build(module: str, function: str) -> Any:
    path = Path(module)
    if path.suffix == ".py" or len(path.parts) > 1:
        raise InputError(
            f"a module is named without its folder and its ending: write {path.stem}:{function}, from the folder of "
            f"the file; got {quote(f'{module}:{function}')}"
        )
    try:
        imported = importlib.import_module(module)
        if not hasattr(imported, function):
            own = [name for name, value in vars(imported).items() if getattr(value, "__module__", None) == module]
            functions = [name for name in own if callable(vars(imported)[name]) and not name.startswith("_")]
            raise unknown_name(f"{module} has no function", function, "Its functions:", functions)
        found = getattr(imported, function)
        if not _takes_nothing(found):
            raise ModelError(
                f"{module}:{function} must be a function that takes no arguments and returns the model; it takes "
                f"arguments. If it is the model, write another function that returns it, such as "
                f"def build(): return {function}"
            )
        return found()
    except ParsimonError:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        what = f"{first_line(error)}{users_place(error)}"
        raise ModelError(f"{module}:{function} did not return a model: {what}") from error
