"""`speechssl doctor` prints what is installed, which engine runs an encoder here, which models are
found, and what is missing for what."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from speechssl import __version__
from speechssl.artifacts import read_json
from speechssl.checkpoints import DEFAULT, MODELS_VARIABLE, SHIPPED, find_models_root
from speechssl.cli.options import Doctor
from speechssl.errors import InputError, cut_error, list_packages

EXTRAS = {  # extra of this package -> what it is for
    "chinese": "pinyin beside characters",
    "dev": "the tests",
    "docs": "the pages",
    "hama": "a recogniser of phones as an encoder",
    "kokoro": "a neural synthesiser with five voices",
    "minilm": "weights of a text encoder, from which readers are trained",
    "mlflow": "--report-to mlflow",
    "music": "recipes/text_side",
    "notebooks": "the notebooks",
    "openvino": "the engine of encoders that is fastest on processors with AMX",
    "peft": "--trained lora",
    "peptides": "recipes/text_side",
    "piper": "a neural synthesiser, for training encoders",
    "ray": "units extract --engine ray, on a cluster",
    "s3prl": "its upstreams and programs",
    "serve": "the page of `speechssl serve`",
    "speed": "recipes/speed",
    "superb": "PESQ (needs a C compiler) and STOI, of enhancement",
    "synth": "synthetic speech: MiniSQA and --speak",
    "tensorboard": "--report-to tensorboard",
    "voices": "perturbed speakers in training",
    "wandb": "--report-to wandb",
}
# program, which is the name of its Debian package as well -> what it is for
PROGRAMS = {"flite": "another synthesiser", "festival": "another synthesiser"}
# (purpose, a checkpoint for it, pattern of the architectures in config.json that serve the purpose)
NEEDED = (
    ("words of people's recordings", "openai/whisper-base", "Whisper|ForCTC$"),
    ("an encoder of base size", "facebook/hubert-base-ls960", "^(Hubert|Wav2Vec2|WavLM|Data2Vec)"),
)


def diagnose(o: Doctor) -> dict[str, Any]:
    """Print sections on packages, engine, models and what is missing, and return them."""
    packages, missing = check_packages()
    installed = [name for name in EXTRAS if name not in missing and "speechssl" not in missing]
    models = find_models()
    sections: dict[str, Any] = {
        "installed": {"speechssl": __version__, "python": platform.python_version(), **packages},
        "extras": installed,
        "engine": describe_engine(o.encoder or f"{DEFAULT}/encoder"),
        "models": models,
        "missing": missing | find_missing_programs() | find_missing_models(models),
    }
    lines = ["installed"]
    lines += [f"  {name} {number}" for name, number in sections["installed"].items()]
    lines += [f"  extras: {', '.join(installed) or 'none'}", "", "engine of encoders"]
    lines += [f"  {what}: {runs}" for what, runs in sections["engine"].items()]
    lines += ["", "models"]
    for place, names in models.items():
        lines.append(f"  {place}{'' if names else ': none'}")
        lines += [f"    {name}  {kind}" for name, kind in names.items()]
    lines += ["", "missing"]
    for name, (purpose, how) in sections["missing"].items():
        lines.append(f"  {name}, for {purpose}: {how}")
    print("\n".join(lines))
    return sections


# ---- packages


def check_packages() -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Check the packages that are always needed, and the extras. Returns the versions of the
    former, and what is missing: name -> (purpose, how to install it)."""
    try:
        needed = [text for text in requires("speechssl") or () if "extra ==" not in text]
    except PackageNotFoundError:
        return {}, {"speechssl": ("its extras and versions", "pip install -e . in the checkout")}
    versions, missing = {}, {}
    for text in needed:
        name = Requirement(text).name
        versions[name] = find_version(name)
        if why := explain_unmet(text):
            missing[name] = ("all verbs", f"pip install '{text}' ({why})")
    for extra, purpose in EXTRAS.items():
        unmet = [f"'{text}'" for text in list_packages(extra) if explain_unmet(text)]
        if unmet:
            missing[extra] = (purpose, f"pip install {' '.join(unmet)}")
    return versions, missing


def find_version(name: str) -> str:
    """Return the version of a package, "" where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def explain_unmet(text: str) -> str:
    """Say why a requirement, as pip takes it, is not met; "" where it is."""
    requirement = Requirement(text)
    installed = find_version(requirement.name)
    if not installed:
        return "not installed"
    if not requirement.specifier.contains(installed, prereleases=True):
        return f"{installed} is installed"
    return ""


def find_missing_programs() -> dict[str, tuple[str, str]]:
    """Find the PROGRAMS that are not installed: name -> (purpose, how to install it)."""
    missing = {}
    for name, purpose in PROGRAMS.items():
        if shutil.which(name) is None:
            missing[name] = (purpose, f"apt install {name}")
    return missing


# ---- engine


def describe_engine(encoder: str) -> dict[str, str]:
    """Describe the processor and the GPUs, and which engine runs an encoder in either precision."""
    try:
        import torch

        from speechssl.encoders.load import load_encoder
        from speechssl.processes import count_cores, has_bf16, list_cpu_capabilities
    except ImportError as error:
        return {"torch": f"cannot be imported ({cut_error(error)})"}
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    bf16 = "bf16" if has_bf16(on_cpu=True) else "no bf16"
    amx = "and AMX" if list_cpu_capabilities().get("amx_bf16") else "and no AMX"
    facts = {
        "processor": f"{count_cores()} cores, {bf16} {amx}",
        "GPU": ", ".join(gpus) or "none",
    }
    for precision in ("fp32", "auto"):
        what = f"{encoder}, precision {precision}"
        try:
            loaded = load_encoder(encoder, precision)
        except InputError as error:
            facts[what] = str(error)
        else:
            kind = type(loaded.engine).__name__.removesuffix("Engine").lower()
            facts[what] = f"{kind} in {loaded.precision} on the {loaded.device}"
    return facts


# ---- models


def find_models() -> dict[str, dict[str, str]]:
    """List the models in every place where verbs look for them: place -> name -> what it is."""
    from huggingface_hub import constants

    shipped = {}
    for folder in sorted(SHIPPED.glob("*/encoder")):
        parts = sorted(path.name for path in folder.parent.iterdir() if ".card" not in path.name)
        shipped[folder.parent.name] = ", ".join(parts)
    root = find_models_root()
    cache = Path(constants.HF_HUB_CACHE)
    own = sorted([*root.glob("*/config.json"), *root.glob("*/*/config.json")])
    offline = ", and nothing is fetched (HF_HUB_OFFLINE)" if constants.is_offline_mode() else ""
    return {
        "ship with the package": shipped,
        f"${MODELS_VARIABLE} ({root})": {
            str(p.parent.relative_to(root)): name_kind(p) for p in own
        },
        f"cache of the hub ({cache}){offline}": dict(list_cached_models(cache)),
    }


def list_cached_models(cache: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, kind) for every model with a config.json in the cache of the hub."""
    for folder in sorted(cache.glob("models--*")):
        configs = sorted(folder.glob("snapshots/*/config.json"))
        if configs:
            yield folder.name.removeprefix("models--").replace("--", "/"), name_kind(configs[-1])


def name_kind(config: Path) -> str:
    """Return the architecture that a config.json names, or otherwise the type of the model."""
    try:
        settings = read_json(config)
    except InputError:
        return "unreadable config.json"
    return str((settings.get("architectures") or [settings.get("model_type", "unknown")])[0])


def find_missing_models(models: dict[str, dict[str, str]]) -> dict[str, tuple[str, str]]:
    """Find the purposes of NEEDED that no model serves: a checkpoint for it -> (purpose, how to get
    it). models: what `find_models` returns."""
    kinds = [kind for names in models.values() for kind in names.values()]
    root = find_models_root()
    missing = {}
    for purpose, name, pattern in NEEDED:
        if not any(re.search(pattern, kind) for kind in kinds):
            how = f"fetched by its name where there is a network; else put it in {root / name}"
            missing[name] = (purpose, how)
    return missing
