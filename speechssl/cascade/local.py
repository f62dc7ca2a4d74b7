"""What a cascade can be made of on this machine: recognisers and readers, known by their
config.json and not by their names.

They are looked for below a folder of models, below the models folder ($SPEECHSSL_MODELS) and in the
hub's cache. Nothing is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from speechssl.io import WEIGHTS, found_checkpoint, models_root, read_json
from speechssl.text import language_of

SYNTHETIC = ("minisqa", "minisqa held-out")  # corpora whose questions nobody asked
TOKENISERS = (
    "vocab.txt",
    "vocab.json",
    "tokenizer.json",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
)
QUESTION_WORDS = {"en": "whose", "zh": "谁"}  # that only vocabularies of the language have whole
NAMES = {"en": "english", "zh": "chinese"}  # as a Whisper that was fine-tuned has its language
JUDGED = 100_000  # bytes of a vocabulary; a smaller one does not show a language
WIDTHS, DEPTHS = (
    ("hidden_size", "d_model", "dim", "n_embd"),
    ("num_hidden_layers", "num_layers", "n_layers", "n_layer"),
)
# model types that answer from pages, pictures and tables
NO_TEXT = re.compile("layoutlm|lilt|bros|markuplm|vilt|lxmert|tapas")


def recognisers(models: Path, language: str) -> list[str]:
    """Recognisers of a language by name, the best first: Whispers with word times before CTC
    models, of each the largest first."""
    return _best(models, lambda folder, config: _recogniser(folder, config, language))


def readers(models: Path, language: str) -> list[str]:
    """Readers of a language that learnt from questions, by name, the largest first:
    AutoModelForQuestionAnswering, and text QA of `train text-qa` on other questions than MiniSQA's.
    """
    return _best(models, lambda folder, config: _reader(folder, config, language))


def below(folder: Path) -> list[Path]:
    """The folders with a config.json in a folder: NAME, OWNER/NAME."""
    return sorted(
        config.parent
        for form in ("*/config.json", "*/*/config.json")
        for config in folder.glob(form)
    )


def place_of(name: str) -> Path | None:
    """Where a checkpoint lies on this machine. name: a folder, or OWNER/NAME."""
    return Path(name) if Path(name).is_dir() else found_checkpoint(name)


def languages_of(folder: Path) -> set[str]:
    """Of a model, as far as its card (the corpora that it was trained on) or the head of its README
    says them."""
    corpus = _card(folder).get("corpus") or {}
    stated = (part.get("settings", {}).get("language") for part in (corpus, *corpus.get("of", ())))
    if languages := {language_of(language) for language in stated if language}:
        return languages
    codes = (code.lower().split("-")[0] for code in _listed(folder, "language"))
    return {{"cmn": "zh"}.get(code, code) for code in codes if re.fullmatch("[a-z]{2,3}", code)}


def known_languages(folder: Path) -> set[str]:
    """Of a model: as stated, else as far as its vocabulary shows; none where there is no model."""
    if (stated := languages_of(folder)) or not folder.is_dir():
        return stated
    vocabulary = b"".join(
        (folder / name).read_bytes() for name in TOKENISERS if (folder / name).is_file()
    )
    return {
        code
        for code, word in QUESTION_WORDS.items()
        if len(vocabulary) < JUDGED or word.encode() in vocabulary
    }


def trained_on(folder: Path | None, name: str = "") -> str:
    """What its card, or the head of its README, says of a model, to follow its name. name: where it
    must be said if they do not."""
    card = _card(folder) if folder else {}
    if "corpus" in (corpus := card.get("corpus") or {}):
        synthetic = f" ({corpus['synthetic']})" if "synthetic" in corpus else ""
        return f", trained on {corpus['corpus']}{synthetic}"
    if str(card.get("hub") or name).startswith("openai/whisper-"):
        return ", trained on transcribed speech from the web (arXiv 2212.04356)"
    sets = _listed(folder, "datasets") if folder else []
    unknown = " (its folder does not say what it was trained on)" if name else ""
    return f", trained on {' and '.join(sets)}" if sets else unknown


def _best(models: Path, worth: Callable[[Path, Any], tuple[Any, ...] | None]) -> list[str]:
    """Names by descending worth, those below a folder of models first. worth: of a folder with a
    config; None: it is no choice.

    Folders without weights or tokeniser are none either, nor are those that cannot be read: anyone
    may have written them.
    """
    from huggingface_hub import constants

    root, local = models_root(), below(models)
    places = {folder: str(folder) for folder in local}
    for folder in below(root):  # a NAME alone may also be that of a folder one is in
        places.setdefault(
            folder, folder.relative_to(root).as_posix() if folder.parent != root else str(folder)
        )
    for entry in sorted(Path(constants.HF_HUB_CACHE).glob("models--*")):
        name = entry.name.removeprefix("models--").replace("--", "/")
        with suppress(ValueError):  # what the hub would not call a model
            if cached := found_checkpoint(name):
                places.setdefault(cached, name)
    ranked = []
    for folder, name in places.items():
        try:
            value = worth(folder, read_json(folder / "config.json"))
        except Exception:  # broken, locked, or not as transformers writes it
            continue
        if value and all(
            any(True for name in names for _ in folder.glob(name))
            for names in (WEIGHTS, TOKENISERS)
        ):
            ranked.append(((folder in local, *value), name))
    return [name for _, name in sorted(ranked, key=lambda item: item[0], reverse=True)]


def _recogniser(folder: Path, config: Any, language: str) -> tuple[Any, ...] | None:
    kind, stated = (config.get("architectures") or [""])[0], languages_of(folder)
    # of its features; processor_config.json has them and the tokeniser's
    if not any(folder.glob("*processor_config.json")):
        return None
    if config.get("model_type") == "whisper":
        generation = read_json(folder / "generation_config.json")
        spoken = (
            {code.strip("<|>") for code in generation.get("lang_to_id") or {}}
            if generation.get("is_multilingual")
            else {"en"}
        )
        tuned = str(generation.get("language") or language).strip("<|>").lower() in (
            language,
            NAMES[language],
        )
        fits = tuned and language in spoken and language in (stated or spoken)
        return (
            (True, _size(config), len(spoken) == 1)
            if fits and generation.get("alignment_heads")
            else None
        )
    if kind.endswith("ForCTC") and "conv_kernel" in config:
        letters = [symbol for symbol in read_json(folder / "vocab.json") if symbol.isalpha()]
        spelt = (
            all(map(str.isascii, letters))
            if language == "en"
            else any("一" <= symbol <= "龥" for symbol in letters)
        )
        return (False, _size(config), True) if (language in stated if stated else spelt) else None
    return None


def _reader(folder: Path, config: Any, language: str) -> tuple[Any, ...] | None:
    kind, card = (config.get("architectures") or [""])[0], _card(folder)
    if "symbols" in config:  # trained here
        is_reader = (
            card.get("what") == "text QA"
            and (card.get("corpus") or {}).get("corpus") not in SYNTHETIC
        )
    else:
        is_reader = "ForQuestionAnswering" in kind and not NO_TEXT.search(
            config.get("model_type", "")
        )
    languages = known_languages(folder) if is_reader else set()
    return (_size(config), not languages >= {*QUESTION_WORDS}) if language in languages else None


def _size(config: Any) -> int:
    """Weights of the layers, about: not of the vocabulary, of which models of many languages have
    most."""
    width, depth = (
        next((config[name] for name in names if name in config), 0) for names in (WIDTHS, DEPTHS)
    )
    depth = (
        depth
        if "encoder_layers" not in config
        else config["encoder_layers"] + config.get("decoder_layers", 0)
    )
    return int(width) ** 2 * int(depth)


def _card(folder: Path) -> Any:
    return read_json(folder / "card.json") if (folder / "card.json").is_file() else {}


def _listed(folder: Path, key: str) -> list[str]:
    """What the head of a README (YAML between two lines of ---, as the hub has it) has under a
    key."""
    readme = folder / "README.md"
    parts = (
        readme.read_text("utf-8", errors="replace").split("---\n", 2) if readme.is_file() else []
    )
    try:
        head = yaml.safe_load(parts[1]) if len(parts) == 3 and not parts[0].strip() else {}
    except yaml.YAMLError:
        head = {}
    value = head.get(key) if isinstance(head, dict) else None
    return [str(one) for one in (value if isinstance(value, list) else [value] if value else [])]
