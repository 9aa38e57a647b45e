"""A run, described: what a TOML file holds, or what flags on the command line make.

    model = "robust"
    data = "bundled"
    images = 300
    eps = "8/255"
    budget = 20000
    attacks = ["parsimonious", "bandits", "nes", "pgd"]

What is not said has the default that `parsimon run` has. Two runs of one spec give the same results.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tomli_w

from parsimon.core.parsing import parse_number
from parsimon.core.threat import Loss, Scores, Targets
from parsimon.errors import InputError, quote, shorten

_LARGEST = 2**20  # bytes of a file that describes a run


@dataclass(frozen=True)
class Spec:
    """Everything that a run's results depend on, and nothing else.

    Attributes:
        attacks: As typed: `nes`, `bandits:imagenet-0.05`, `square,p_init=0.3`.
        model: As typed: a bundled network, the path of an ONNX file, `package.module:function`.
        data: As typed: `bundled`, `images.npz`, `cifar10:FOLDER`, `folder:PATH` and others (see `data.FORMS`).
        preprocess: How pictures are resized and cropped, as typed: `resize=256,crop=224`; None: as the card of a
            network of the zoo says, and not at all for other models.
        images: Attack the first so many correctly classified images, or `all`.
        sample: Attack a random sample of them instead; this is its seed.
        eps: Radius of the ball for images in [0, 1], as a number or a fraction.
        budget: Queries allowed for each image.
        targets: For a targeted attack: `next`, the class after the true one, or `random`, one drawn for each image.
        loss: The loss to climb; None: each attack's own.
        scores: What the model returns.
        eight_bit: Show the model only images whose pixels are k / 255.
        seed: Of the attacks' random choices.
        batch_size: Images in a batch. An accelerator may round differently for another size, so it belongs to the run.
        relative_to: The attack over whose successes queries are averaged once more.
    """

    attacks: tuple[str, ...] = ("parsimonious",)
    model: str = "robust"
    data: str = "bundled"
    preprocess: str | None = None
    images: int | Literal["all"] = 100
    sample: int | None = None
    eps: str = "8/255"
    budget: int = 2000
    targets: Targets | None = None
    loss: Loss | None = None
    scores: Scores = "logits"
    eight_bit: bool = False
    seed: int = 0
    batch_size: int | None = None
    relative_to: str | None = None

    def __post_init__(self) -> None:
        if not self.attacks:
            raise InputError("a run needs at least one attack")
        _ = self.radius

    @property
    def radius(self) -> float:
        """`eps` as a number."""
        try:
            return parse_number(self.eps)
        except ValueError:
            raise InputError(
                f"eps must be a number or a fraction such as 8/255; got {quote(self.eps)}", argument="eps"
            ) from None

    @property
    def hash(self) -> str:
        """The same for the same spec, whatever its file looks like."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def toml(self) -> str:
        """As a file; what is None is left out, since TOML has no word for it."""
        return tomli_w.dumps({key: value for key, value in asdict(self).items() if value is not None})

    @classmethod
    def read(cls, path: Path) -> Spec:
        try:
            with path.open("rb") as file:
                content = file.read(_LARGEST + 1)
            if len(content) > _LARGEST:  # it may even be endless
                raise InputError(f"the description of a run has at most {_LARGEST:,} bytes; this is no such file")
            return cls.of(tomllib.loads(content.decode()))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        except (ValueError, RecursionError) as error:  # numbers of too many digits and arrays of too many levels, too
            raise InputError(f"{path} is not a TOML file: {shorten(str(error))}") from error

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Spec:
        """From plain values, as a file has them."""
        hints = get_type_hints(cls)
        known = [field.name for field in fields(cls)]
        for key, value in settings.items():
            if key not in known:
                raise InputError(f"there is no setting {quote(key)}; known are {', '.join(known)}")
            if not _fits(value, hints[key]):
                raise InputError(f"{key} must be {_kind(hints[key])}; got {quote(value)}")
            if any("\0" in each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)):
                raise InputError(f"{key} must not contain a NUL character; got {quote(value)}")
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()
        }
        return cls(**values)

    def differences(self, other: Spec) -> list[str]:
        """What the other says otherwise, a line each."""
        mine, others = asdict(self), asdict(other)
        return [f"{key}: {quote(mine[key])}, not {quote(others[key])}" for key in mine if mine[key] != others[key]]


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is tuple:
        return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if isinstance(hint, UnionType) or get_origin(hint) is not None:
        return any(_fits(value, kind) for kind in get_args(hint))
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _kind(hint: Any) -> str:
    if get_origin(hint) is tuple:
        return "a list of strings"
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(get_args(hint))
    if isinstance(hint, UnionType) or get_origin(hint) is not None:
        return " or ".join(_kind(kind) for kind in get_args(hint) if kind is not type(None))
    return {str: "a string", int: "a whole number", bool: "true or false"}[hint]
