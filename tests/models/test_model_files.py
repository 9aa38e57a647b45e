"""Tests of model files: damaged, missing, of another format, or malicious."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from data_files import Trap
from parsimon import InputError, ModelError, zoo
from small_model import attack


def write_onnx(path: Path, shape: tuple[int | str, ...], kind: int = TensorProto.FLOAT) -> Path:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Flatten", ["images"], ["scores"])],
            "flatten",
            [helper.make_tensor_value_info("images", kind, list(shape))],
            [helper.make_tensor_value_info("scores", kind, None)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(model, str(path))
    return path


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no model file .*lost\.onnx: give the path of an ONNX file"):
        attack(tmp_path / "lost.onnx")


def test_a_folder_is_no_model_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no model file"):
        attack(tmp_path)


@pytest.mark.parametrize("keep", [0, 100, 0.5], ids=["empty", "the first bytes", "half"])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, keep: float) -> None:
    whole = zoo.path("robust").read_bytes()
    path = tmp_path / "damaged.onnx"
    path.write_bytes(whole[: int(keep * len(whole)) if keep < 1 else int(keep)])
    with pytest.raises(ModelError) as caught:
        attack(path)
    assert "damaged.onnx cannot be opened as an ONNX model: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_trap_works(tmp_path: Path) -> None:
    """Or the tests below would pass for the wrong reason."""
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung")))
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "MODEL.PKL", "model.bin", "model.onnx", "model"])
def test_a_pickle_is_refused_and_its_code_is_never_run(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(ModelError, match=rf"{name} (may be a pickle.*torch\.onnx\.export|cannot be opened)"):
        attack(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_a_torch_archive_is_refused_and_its_code_is_never_run(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(ModelError, match="may be a pickle"):
        attack(tmp_path / "model.pt")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("shape", "kind", "found"),
    [
        (("n", 192), TensorProto.FLOAT, "['n', 192]"),
        (("n", 3, 8, 8, 1), TensorProto.FLOAT, "['n', 3, 8, 8, 1]"),
        (("n", 3, 8, 8), TensorProto.FLOAT16, "tensor(float16)"),
    ],
    ids=["flat", "five dimensions", "half precision"],
)
def test_an_onnx_model_with_another_input_raises_an_error_with_the_expected_input(
    tmp_path: Path, shape: tuple[int | str, ...], kind: int, found: str
) -> None:
    with pytest.raises(ModelError) as caught:
        attack(write_onnx(tmp_path / "odd.onnx", shape, kind))
    for word in ("one float32 input (images, channels, rows, columns)", found, "Wrap it in a Python function"):
        assert word in str(caught.value)


def test_images_of_another_shape_raise_an_error_with_the_models_shape(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        attack(write_onnx(tmp_path / "flatten.onnx", ("n", 3, 16, "columns")))
    for word in ("takes images of shape (3, 16, any)", "got (3, 8, 8)", "resize"):
        assert word in str(caught.value)
