"""What may be added to any kind of pre-training on distorted speech: a clean teacher, a domain adversary."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from speechssl.encoders.loading import load_checkpoint
from speechssl.errors import InputError
from speechssl.pretraining.adversary import AdversaryOptions, DomainAdversary
from speechssl.pretraining.crops import Distortions
from speechssl.pretraining.distillation import CleanTeacher, DistilOptions


class Run(Protocol):
    """The options of a run, as far as they matter here."""

    @property
    def start(self) -> str | None: ...
    @property
    def distort(self) -> Distortions | None: ...
    @property
    def distil(self) -> DistilOptions | None: ...
    @property
    def adversary(self) -> AdversaryOptions | None: ...


def extras(encoder: Any, options: Run) -> list[nn.Module]:
    """What is added to the loss. Raises InputError for what needs distorted speech, or a start, without one."""
    found: list[nn.Module] = []
    if (options.distil or options.adversary) and options.distort is None:
        raise InputError("a clean teacher and a domain classifier need distorted speech; give --distort, such as m+g+r")
    layers = encoder.config.num_hidden_layers
    if options.distil:
        if not options.start:
            raise InputError("the clean teacher is the encoder that training starts from; name one with --from")
        chosen = options.distil.layers or range(layers + 1)
        found.append(CleanTeacher(load_checkpoint(options.start).model, _checked(chosen, layers), options.distil.weight))
    if options.adversary and options.distort:
        chosen = _checked(options.adversary.layers or (layers,), layers)
        adversary = replace(options.adversary, layers=chosen)
        found.append(DomainAdversary(encoder.config.hidden_size, len(options.distort.domains), adversary))
    return found


def _checked(chosen: Any, layers: int) -> tuple[int, ...]:
    if not all(0 <= layer <= layers for layer in chosen):
        raise InputError(f"the encoder has the layers 0 to {layers}, not {', '.join(map(str, chosen))}; choose among them")
    return tuple(chosen)


def plain(options: Any) -> dict[str, Any]:
    """As JSON holds it; what was not asked for is left out, so that folders from before there was such an option stay valid."""
    values = asdict(replace(options, distort=None)) | {"distort": getattr(options.distort, "card", None)}
    if not values["mask"]["same_masks"]:
        del values["mask"]["same_masks"]
    return {name: value for name, value in values.items() if value is not None}


def named(options: Any) -> dict[str, Any]:
    """`plain` for a card, which says what things are called and not where on this machine they lie."""
    values = plain(options)
    places = {name: "/".join(Path(values[name]).parts[-2:]) for name in ("teacher", "start", "codebook") if name in values}
    return values | places
