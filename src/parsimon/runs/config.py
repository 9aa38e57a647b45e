"""A run, described: the one thing that travels from the command line, a TOML file or Python to the engine.

    model = "robust"
    data = "bundled"
    images = 300
    eps = "8/255"
    budget = 20000
    attacks = ["parsimonious", "bandits", "nes", "pgd"]

    [execution]
    workers = 2

Every setting has the default that `parsimon run` has. Two runs of one configuration give the same results, whatever the
`execution` part says.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import tomli_w
from msgspec import Meta

from parsimon.core.parsing import parse_number
from parsimon.core.threat import LEAST_ERROR_RATE, MOST_DRAWS, Loss, Sampling, Scores, Targets, Threat, check_radius
from parsimon.defences.registry import any_random, as_texts, check_together, parse_defence
from parsimon.errors import LARGEST, InputError, plain_number, quote, shorten, unknown_name

Described = TypeVar("Described")

SAMPLING = ("repeats", "draws", "error_rate")  # settings of random models

_NO_VALUE = (msgspec.ValidationError, OverflowError, UnicodeError)  # the last for text that is no text
_LARGEST_FILE = 2**20  # bytes of a file that describes a run
_LARGEST_BATCH = 2**16
_MOST_IN_FLIGHT = 2**20

Name = Annotated[str, Meta(pattern="^[^\0]+$", description="a text that is not empty and has no NUL character")]
Names = Annotated[
    tuple[Name, ...],
    Meta(min_length=1, description="a list of at least one name, none of them empty or with a NUL character"),
]
Defences = Annotated[
    tuple[Name, ...],
    Meta(min_length=1, description="a name such as 'noise,sigma=0.02', or a list of at least one name"),
]
Count = Annotated[int, Meta(ge=1, le=LARGEST, description="a whole number, at least 1")]
Seed = Annotated[int, Meta(ge=0, le=LARGEST, description="a whole number, at least 0")]
BatchSize = Annotated[int, Meta(ge=1, le=_LARGEST_BATCH, description="a whole number, at least 1")]
InFlight = Annotated[int, Meta(ge=1, le=_MOST_IN_FLIGHT, description="a whole number, at least 1")]
Draws = Annotated[int, Meta(ge=1, le=MOST_DRAWS, description="a whole number, at least 1")]
ErrorRate = Annotated[float, Meta(ge=LEAST_ERROR_RATE, le=1, description="a number from 0.00001 to 1")]
Address = Annotated[str, Meta(min_length=1, description="the address of a Ray cluster, or 'local'")]
Flag = Annotated[bool, Meta(description="true or false")]
Radius = Annotated[str | float, Meta(description="a number or a fraction such as 8/255")]


@cache
def _hints(record: type) -> dict[str, Any]:
    return get_type_hints(record, include_extras=True)


def _described(hint: Any, value: object) -> str:
    """Say in words what a field may be, where a value is something else."""
    if get_origin(hint) is Annotated:
        _, meta = get_args(hint)
        too_large = isinstance(value, int) and meta.le is not None and value > meta.le
        return f"a whole number, at most {meta.le:,}" if too_large else str(meta.description)
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return f"one of {', '.join(choices)}" if len(choices) > 1 else repr(choices[0])
    return ", or ".join(_described(each, value) for each in get_args(hint) if each is not type(None))


def _refusal(name: str, hint: Any, given: Any) -> InputError:
    """Return the error for a field that may not have a value; of several numbers, it names the one at fault."""
    items = get_args(get_args(hint)[0]) if get_origin(hint) is Annotated else ()
    if items and items[0] in (Count, Radius) and isinstance(given, list | tuple):
        for each in given:
            if not _fits(_plain(each), items[0]):
                return _refusal(name, items[0], each)
    return InputError(f"{name} must be {_described(hint, _plain(given))}; got {quote(given)}", argument=name)


def _fits(value: Any, hint: Any) -> bool:
    try:
        msgspec.convert(value, hint)
    except _NO_VALUE:
        return False
    return True


def _plain(value: Any) -> Any:
    """Return a value with numbers and texts of numpy, and fractions, as Python's own."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.bool_ | np.str_):
        return value.item()
    return plain_number(value)


def allowed_values(record: type, name: str) -> str:
    """Say in words what a field of a record may be."""
    return _described(_hints(record)[name], None)


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A record whose fields are checked when it is made, however it is made."""

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)).items():
            given = getattr(self, name)
            if isinstance(given, Checked):
                continue
            try:
                checked = msgspec.convert(_plain(given), hint)
            except _NO_VALUE:
                raise _refusal(name, hint, given) from None
            msgspec.structs.force_setattr(self, name, checked)


class ExecutionOptions(Checked, frozen=True, kw_only=True):
    """Execution options; none of them affects results.

    Attributes:
        in_flight: Images attacked at once; it sets the memory used. None: 256 or more.
        workers: Worker processes; None: this process does all the work.
        ray: Address of a Ray cluster for the workers, or `local` for one on this machine.
        progress: Show a bar on standard error; None: on a terminal, and elsewhere a line every 30 seconds.
        verify: Query every adversarial image once more at the end, uncharged, and report how many successes hold.
    """

    in_flight: InFlight | None = None
    workers: Count | None = None
    ray: Address | None = None
    progress: Flag | None = None
    verify: Flag = True


class RunConfig(Checked, frozen=True, kw_only=True):
    """Everything that a run's results depend on, and how to execute it.

    Attributes:
        attacks: The attacks, as typed: `nes`, `bandits:imagenet-0.05`, `square,p_init=0.3`.
        model: The model, as typed: a bundled network, the path of an ONNX file, `package.module:function`.
        data: The images, as typed: `bundled`, `images.npz`, `cifar10:FOLDER`, `folder:PATH` and others, which
            `parsimon run --help` lists.
        preprocess: How pictures are resized and cropped, as typed: `resize=256,crop=224`. None: as the model's card or
            config says, where it has one.
        images: Number of images, or `all`.
        selection: What `images` counts. `correct`: correctly classified images, so that the results of all images are
            an estimate. `any`: images of the data; the others are left out, and the results are about these alone.
        sample: Seed of a random sample of images; None: the first ones.
        eps: Radius of the ball for images in [0, 1], as a number or a fraction.
        budget: Queries allowed per image.
        targets: For a targeted attack: `next`, the class after the true one, or `random`, one drawn per image.
        loss: The loss to maximise; None: each attack's own.
        scores: What the model returns; None: detect it from the scores of the first images.
        eight_bit: Show the model only images whose pixels are k / 255.
        seed: Seed of the attacks' random choices.
        batch_size: Images per batch. An accelerator may round differently for another size, so it belongs to the run.
        defence: Defences in front of the model, as typed: `noise,sigma=0.02`, `jpeg`. A query passes them in order.
        stochastic: Allow a model whose responses are random: an image is fooled if the model errs in more than half of
            its fresh draws.
        repeats: For a random model: queries that are averaged wherever an attack would make one. None: 1.
        draws: For a random model: fresh draws that decide whether an image is fooled, not charged. None: 100.
        error_rate: For a random model: error rate of the tests by which an attack accepts a change or ends. None: 0.05;
            1: no tests, every response counts as exact.
        until_budget: Let label-only attacks continue after their success, to find closer adversarial images.
        skip_fooled: Leave out the images that an earlier black-box attack fooled within this many queries. None: every
            attack gets every image.
        relative_to: The attack over whose successes queries are averaged once more.
        execution: How the run is executed; the only part that does not affect results.
    """

    attacks: Names = ("thrift",)
    model: Name = "robust"
    data: Name = "bundled"
    preprocess: Name | None = None
    images: Count | Literal["all"] = 100
    selection: Literal["correct", "any"] = "correct"
    sample: Seed | None = None
    eps: Radius = "8/255"
    budget: Count = 2000
    targets: Targets | None = None
    loss: Loss | None = None
    scores: Scores | None = None
    eight_bit: Flag = False
    seed: Seed = 0
    batch_size: BatchSize | None = None
    defence: Defences | None = None
    stochastic: Flag = False
    repeats: Draws | None = None
    draws: Draws | None = None
    error_rate: ErrorRate | None = None
    until_budget: Flag = False
    skip_fooled: Count | None = None
    relative_to: Name | None = None
    execution: ExecutionOptions = ExecutionOptions()

    def __post_init__(self) -> None:
        if self.defence is not None:  # a name, or objects
            msgspec.structs.force_setattr(self, "defence", as_texts(self.defence))
        super().__post_init__()
        check_together([parse_defence(each) for each in self.defence or ()])
        check_radius(self.radius, self.eps)
        for name in SAMPLING:
            if getattr(self, name) is not None and not (self.stochastic or any_random(self.defence or ())):
                raise InputError(f"{name} is for random models: it needs stochastic=True", argument=name)
        if self.repeats is not None and self.repeats > self.budget:
            raise InputError(
                f"repeats must be at most the budget, or no point can be queried; got {self.repeats:,} and "
                f"{self.budget:,}",
                argument="repeats",
            )
        if self.loss is not None:
            Threat(self.radius, loss=self.loss, sampling=self.sampling)  # refuses a loss that does not fit

    @property
    def radius(self) -> float:
        """`eps` as a number."""
        if isinstance(self.eps, float):
            return self.eps
        text = re.sub(r"\s", "", self.eps)
        try:
            return parse_number(text)
        except ValueError:
            hint = f": did you mean {text.replace(',', '.')}?" if re.fullmatch(r"\d*,\d+", text) else ""
            raise InputError(
                f"eps must be a number or a fraction such as 8/255; got {quote(self.eps)}{hint}", argument="eps"
            ) from None

    @property
    def effective_radius(self) -> float:
        """The radius that images obey: in 8-bit mode, it is a multiple of 1/255."""
        return Threat(self.radius, eight_bit=self.eight_bit).effective_eps

    @property
    def sampling(self) -> Sampling | None:
        """How the model is sampled; None if it is not random."""
        given = {name: getattr(self, name) for name in SAMPLING}
        chosen = {name: value for name, value in given.items() if value is not None}
        return Sampling(**chosen) if self.stochastic else None

    @property
    def hash(self) -> str:
        """A hash of the settings that results depend on."""
        return hashlib.sha256(json.dumps(self.settings(), sort_keys=True).encode()).hexdigest()[:16]

    def settings(self) -> dict[str, Any]:
        """Return the settings that results depend on."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if name != "execution"}

    def replace(self, **changes: Any) -> RunConfig:
        """Return a copy with some settings changed; those of the execution part are recognised by their names."""
        execution = {name: changes.pop(name) for name in ExecutionOptions.__struct_fields__ if name in changes}
        changed = msgspec.structs.replace(self, **changes)
        if not execution:
            return changed
        return msgspec.structs.replace(changed, execution=msgspec.structs.replace(self.execution, **execution))

    def differences(self, other: RunConfig) -> list[str]:
        """Return one line for each setting in which the other differs; execution is left out."""
        mine, others = self.settings(), other.settings()
        return [f"{key}: {quote(mine[key])}, not {quote(others[key])}" for key in mine if mine[key] != others[key]]

    def toml(self) -> str:
        """Return the settings as a TOML file. What is None is left out, since TOML has no null."""
        return tomli_w.dumps({key: value for key, value in self.settings().items() if value is not None})

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> RunConfig:
        """Make a configuration from plain values, as a TOML file has them; refuse unknown names with a suggestion."""
        check_names("a run", settings, cls.__struct_fields__)
        execution = settings.get("execution", {})
        if isinstance(execution, Mapping):
            check_names("execution", execution, ExecutionOptions.__struct_fields__)
            return cls(**{**settings, "execution": ExecutionOptions(**execution)})
        raise InputError(f"execution must be a table of settings; got {quote(execution)}")

    @classmethod
    def read(cls, path: str | Path) -> RunConfig:
        """Read a TOML file."""
        return read_toml(path, cls.of)


def read_toml(path: str | Path, make: Callable[[dict[str, Any]], Described]) -> Described:
    """Read a TOML file with settings, and make a configuration of them."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:  # it may even be endless
            raise InputError(f"the description of a run has at most {_LARGEST_FILE:,} bytes; this file has more")
        return make(tomllib.loads(content.decode()))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:  # numbers of too many digits and arrays of too many levels, too
        raise InputError(f"{path} is not a TOML file: {shorten(str(error))}") from error


DEFAULTS = RunConfig()


def check_names(what: str, settings: Mapping[str, object], known: Collection[str]) -> None:
    """Refuse a setting with an unknown name, and suggest the one that was probably meant."""
    for name in settings:
        if name not in known:
            raise unknown_name(f"{what} has no setting", name, "It has", known)
