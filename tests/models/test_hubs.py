"""Models by name: what a hub's library saves is opened as that library would, with its preprocessing inside."""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from numpy.typing import NDArray

import parsimon
from parsimon import InputError, MissingExtraError, ModelError, runs
from parsimon.data import Preprocess, open_preprocess
from parsimon.models import as_model, hubs
from parsimon.models.named import open_model
from parsimon.models.torch import TorchModel
from parsimon.runs.config import RunConfig

transformers: Any = pytest.importorskip("transformers")

HUBCONF = """
import torch

class Linear(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3 * 8 * 8, classes)

    def forward(self, images):
        return self.linear(images.flatten(1))

def plain(classes=4):
    return Linear(classes)

def configured(classes=4):
    network = Linear(classes)
    network.default_cfg = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4], "input_size": (3, 8, 8), "crop_pct": 0.8}
    return network

def broken():
    raise KeyError("weights")
"""


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture in a folder for its class."""
    folder: Path = tmp_path_factory.mktemp("pictures") / "class0"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    PIL.Image.fromarray(pixels).resize((140, 100), PIL.Image.Resampling.BICUBIC).save(folder / "a.png")
    return folder / "a.png"


def resnet(folder: Path) -> str:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5
    )
    torch.manual_seed(0)
    transformers.ResNetForImageClassification(config).eval().save_pretrained(folder)
    transformers.ConvNextImageProcessor(
        size={"shortest_edge": 32}, crop_pct=0.8, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4]
    ).save_pretrained(folder)
    return f"hf:{folder}"


def vit(folder: Path) -> str:
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=8,
        num_labels=5,
    )
    torch.manual_seed(0)
    transformers.ViTForImageClassification(config).eval().save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}, resample=2).save_pretrained(folder)
    return f"hf:{folder}"


def mobilevit(folder: Path) -> str:
    """Blue, green, red; in [0, 1], without mean and deviation; resized, then cropped."""
    config = transformers.MobileViTConfig(
        image_size=64,
        hidden_sizes=[8, 8, 8],
        neck_hidden_sizes=[4, 4, 8, 8, 8, 8, 8],
        num_attention_heads=2,
        num_labels=5,
    )
    torch.manual_seed(0)
    transformers.MobileViTForImageClassification(config).eval().save_pretrained(folder)
    transformers.MobileViTImageProcessor(
        size={"shortest_edge": 72}, crop_size={"height": 64, "width": 64}
    ).save_pretrained(folder)
    return f"hf:{folder}"


Maker = Callable[[Path], str]


# --- Hugging Face ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [resnet, vit, mobilevit], ids=lambda make: make.__name__)
def test_a_picture_gets_the_scores_that_transformers_give_it(make: Maker, picture: Path, tmp_path: Path) -> None:
    """Resized, cropped and normalised by the library's own processor on one side, and by parsimon on the other."""
    name = make(tmp_path)
    folder = name.removeprefix("hf:")
    theirs = transformers.AutoImageProcessor.from_pretrained(folder)
    network = transformers.AutoModelForImageClassification.from_pretrained(folder)
    with PIL.Image.open(picture) as opened, torch.no_grad():
        expected = network(**theirs(opened.convert("RGB"), return_tensors="pt")).logits.numpy()
        preprocess = hubs.preprocess(name)
        assert preprocess is not None
        image = open_preprocess(preprocess).apply(opened)

    model = as_model(name)
    assert isinstance(model, TorchModel)
    assert model.image_shape == image.shape
    np.testing.assert_allclose(model(torch.from_numpy(image[None])), expected, atol=1e-5)


def test_a_model_by_name_is_attacked_as_the_module_that_it_is(tmp_path: Path) -> None:
    """The normalisation written out by hand, in a module that parsimon had no part in."""
    name = resnet(tmp_path)
    network = transformers.AutoModelForImageClassification.from_pretrained(tmp_path)
    mean, deviation = (torch.tensor(each).reshape(1, 3, 1, 1) for each in ([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]))

    class Normalised(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network

        def forward(self, images: torch.Tensor) -> Any:
            return self.inner((images - mean) / deviation).logits

    images = np.random.default_rng(1).random((4, 3, 32, 32), np.float32)
    with torch.no_grad():
        labels = Normalised()(torch.from_numpy(images)).argmax(dim=1).numpy()
    by_name = parsimon.attack(name, images, labels, 0.2, budget=20)
    by_hand = parsimon.attack(Normalised(), images, labels, 0.2, budget=20)
    assert by_name.outcomes == by_hand.outcomes


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape("takes images of shape (3, 32, 32); got (3, 8, 8)")):
        parsimon.attack(vit(tmp_path), np.zeros((1, 3, 8, 8), np.float32), [0], 0.1)


def test_a_run_on_pictures_writes_down_how_the_config_resizes_them(picture: Path, tmp_path: Path) -> None:
    name = resnet(tmp_path / "model")
    image = Preprocess(resize=40, crop=32, interpolation="bicubic").apply(PIL.Image.open(picture))
    seen = int(as_model(name)(torch.from_numpy(image[None])).argmax())
    folders = picture.parent.parent
    for number in range(seen):  # so that the picture's class is the one that the network sees
        (folders / f"a{number}").mkdir()
        PIL.Image.open(picture).save(folders / f"a{number}" / "a.png")
    spec = RunConfig(model=name, data=f"folder:{folders}", eps="0.1", budget=5)
    runs.run(spec, tmp_path / "run")
    assert runs.config_of(tmp_path / "run").preprocess == "resize=40,crop=32,interpolation=bicubic"
    (tmp_path / "model").rename(tmp_path / "gone")  # a run is read without its model
    result = runs.load(tmp_path / "run").results["Thrift"]
    np.testing.assert_array_equal(result.images[0], image)


# --- torch.hub, from a folder ---------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "hubconf.py").write_text(HUBCONF)
    return tmp_path


def scores(name: str, images: NDArray[np.float32]) -> NDArray[Any]:
    return as_model(name)(torch.from_numpy(images))


def test_a_network_of_torch_hub_is_shown_what_is_said(repository: Path) -> None:
    images = np.random.default_rng(0).random((2, 3, 8, 8), np.float32)
    network = torch.hub.load(str(repository), "plain", source="local", classes=6)
    by_hand = (torch.from_numpy(images) - torch.tensor([0.5, 0.4, 0.3]).reshape(3, 1, 1)) / 0.25
    with torch.no_grad():
        expected = network(by_hand).numpy()
    found = scores(f"torchhub:{repository}:plain,classes=6,mean=0.5/0.4/0.3,std=0.25", images)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_network_of_torch_hub_may_carry_its_config(repository: Path) -> None:
    images = np.random.default_rng(0).random((2, 3, 8, 8), np.float32)
    by_config = scores(f"torchhub:{repository}:configured", images)
    by_name = scores(f"torchhub:{repository}:plain,mean=0.5/0.4/0.3,std=0.2/0.3/0.4", images)
    np.testing.assert_array_equal(by_config, by_name)
    model = as_model(f"torchhub:{repository}:configured")
    assert model.image_shape == (3, 8, 8)


def test_what_a_network_of_torch_hub_wants_is_not_guessed(repository: Path) -> None:
    with pytest.raises(InputError, match=r"does not describe the input of .*: add it"):
        open_model(f"torchhub:{repository}:plain")


# --- timm and RobustBench, where they can be imported ---------------------------------------------------------------


def importable(library: str) -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):
            return importlib.import_module(library)
    except (ImportError, RuntimeError) as error:  # they need torchvision, whose compiled part may not fit torch
        pytest.skip(f"{library} does not import here: {error}")


def test_a_network_of_timm_is_shown_what_its_config_says(tmp_path: Path) -> None:
    timm = importable("timm")
    network = timm.create_model("resnet10t", pretrained=False, num_classes=5).eval()
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    config = timm.data.resolve_model_data_config(network)
    images = np.random.default_rng(0).random((2, *config["input_size"]), np.float32)
    mean, deviation = (torch.tensor(config[key]).reshape(1, 3, 1, 1) for key in ("mean", "std"))
    with torch.no_grad():
        expected = network((torch.from_numpy(images) - mean) / deviation).numpy()
    told = scores(f"timm:resnet10t,num_classes=5,checkpoint_path={tmp_path / 'weights.pth'}", images)
    np.testing.assert_allclose(told, expected, atol=1e-5)


def test_pictures_for_timm_are_resized_as_its_own_transform_does(picture: Path) -> None:
    timm = importable("timm")
    network = timm.create_model("resnet10t", pretrained=False)
    config = timm.data.resolve_model_data_config(network)
    transform = timm.data.create_transform(**{**config, "mean": (0, 0, 0), "std": (1, 1, 1)}, is_training=False)
    told = hubs.preprocess("timm:resnet10t")
    assert told is not None
    with PIL.Image.open(picture) as opened:
        np.testing.assert_allclose(open_preprocess(told).apply(opened), transform(opened.convert("RGB")), atol=1e-6)


def test_a_network_of_robustbench_takes_images_as_they_are(tmp_path: Path) -> None:
    utils = importable("robustbench.utils")
    folder = tmp_path / "cifar10" / "Linf"
    folder.mkdir(parents=True)
    entry = utils.all_models[utils.BenchmarkDataset.cifar_10][utils.ThreatModel.Linf]["Wong2020Fast"]
    network = entry["model"]().eval()
    torch.save(network.state_dict(), folder / "Wong2020Fast.pt")  # where its loader looks before it downloads
    images = np.random.default_rng(0).random((2, 3, 32, 32), np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(images)).numpy()
    name = f"robustbench:Wong2020Fast,model_dir={tmp_path}"
    np.testing.assert_allclose(scores(name, images), expected, atol=1e-5)
    assert as_model(name).image_shape == (3, 32, 32)


def test_a_network_that_robustbench_does_not_know_is_refused() -> None:
    importable("robustbench.utils")
    with pytest.raises(ModelError, match="robustbench:Nobody2031 cannot be loaded"):
        open_model("robustbench:Nobody2031")


# --- sentences ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("hf:", InputError, "lacks the name of a model"),
        ("timm:resnet18,pretrained", InputError, "given as key=value"),
        ("torchhub:resnet18,mean=0,std=1", InputError, "torchhub:OWNER/REPOSITORY:NAME"),
        ("torchhub:{folder}:plain,mean=a/b,std=1", InputError, "numbers with slashes"),
        ("torchhub:{folder}:broken,mean=0,std=1", ModelError, "cannot be loaded: KeyError: 'weights'"),
        ("torchhub:{folder}:nothing,mean=0,std=1", ModelError, "Check its name"),
        ("hf:{folder}", ModelError, "cannot be loaded"),
    ],
)
def test_what_is_wrong_with_a_name_is_said(name: str, kind: type[Exception], words: str, repository: Path) -> None:
    with pytest.raises(kind, match=words):
        open_model(name.format(folder=repository))


def test_a_hub_that_cannot_be_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # as the variable of that name does
    with pytest.raises(ModelError, match=r"hf:nobody/nothing cannot be loaded: .* first download needs the network"):
        open_model("hf:nobody/nothing")


@pytest.mark.parametrize(
    ("hub", "library", "extra"),
    [
        ("hf", "transformers", "huggingface"),
        ("timm", "timm", "timm"),
        ("robustbench", "robustbench.utils", "robustbench"),
    ],
)
def test_a_library_that_is_missing_is_said(hub: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # which Python takes for one that is not installed
    with pytest.raises(MissingExtraError, match=re.escape(f"pip install 'parsimon[{extra}]'")):
        open_model(f"{hub}:anything")
