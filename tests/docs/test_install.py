"""Follow the README alone: install the package, and evaluate a torch model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import parsimon

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

pytestmark = pytest.mark.install

OWN_MODEL = """
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10))
images = torch.rand(20, 3, 32, 32)
labels = model(images).argmax(1)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_of(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    venv.create(folder / "backend", with_pip=True)
    python = str(folder / "backend" / "bin" / "python")
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *requires], check=True)
    subprocess.run([python, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)], cwd=ROOT, check=True)
    (built,) = folder.glob("*.tar.gz")
    return built


def wheel_of(source: Path, folder: Path) -> Path:
    """Build a wheel from a folder or an sdist."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    subprocess.run(command, check=True)
    (built,) = folder.glob("*.whl")
    return built


def readme_of(wheel: Path) -> str:
    """Return what the package index shows."""
    with zipfile.ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        return content.read(name).decode().partition("\n\n")[2]


def test_links_and_pictures_work_on_the_package_index(wheel: Path) -> None:
    shown = readme_of(wheel)
    target = r'(?:\]\(|src="|srcset=")([^)"]+)'
    targets = re.findall(target, shown)
    assert len(targets) == len(re.findall(target, README)) > 20
    assert all(each.startswith("https://") for each in targets)
    files = [each for each in targets if f"/v{parsimon.__version__}/" in each]
    assert sum(each.startswith("https://raw.") for each in files) == 3  # pictures
    for each in files:
        assert (ROOT / each.partition(f"/v{parsimon.__version__}/")[2]).is_file()
    assert "<!--" not in shown


def test_the_wheel_of_the_sdist_is_the_wheel_of_the_repository(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    built = wheel_of(sdist, tmp_path)
    with zipfile.ZipFile(wheel) as direct, zipfile.ZipFile(built) as indirect:
        files = direct.namelist()
        assert sorted(indirect.namelist()) == sorted(files)
    assert "parsimon/catalogue/robust.onnx" in files
    assert readme_of(built) == readme_of(wheel) != ""


def test_the_sdist_holds_only_what_the_wheel_is_built_from(sdist: Path) -> None:
    with tarfile.open(sdist) as content:
        top = {name.split("/")[1] for name in content.getnames()}
    described = {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "PKG-INFO"}
    assert top == {"src", "pyproject.toml", ".gitignore", *described}


def test_the_readme_leads_to_a_verdict_on_a_torch_model(wheel: Path, tmp_path: Path) -> None:
    """Its install line with the extra that it names for torch, then its code with a model of one's own."""
    assert '$ pip install "parsimon[onnx]"' in README
    assert "torch module (`parsimon[torch]`)" in README
    (code,) = re.findall(r"^```python\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in code.splitlines() if "zoo.images()" not in line]
    assert len(lines) == len(code.splitlines()) - 1, "one line gives the images"
    own = "\n".join(lines).replace('"robust"', "model").replace("budget=500", "budget=50")
    assert "evaluate(model, images, labels" in own

    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    environment = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    environment.pop("PYTHONPATH", None)
    install = [str(python), "-m", "pip", "install", "--quiet", f"{wheel}[torch]"]
    subprocess.run(install, env=environment, check=True)
    script = tmp_path / "mine.py"
    script.write_text(OWN_MODEL + own)
    ran = subprocess.run([str(python), str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "(clean)" in ran.stdout
    assert "100.0%" in ran.stdout  # the labels are the model's own
    assert "Thrift" in ran.stdout
