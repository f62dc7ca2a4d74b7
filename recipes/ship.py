"""Make a set that ships: an encoder of a finished run with its units, recogniser and readers, as
plain int8 files.

    python recipes/ship.py MODELS CTC CORPUS OUT RECIPE
        makes the set OUT, such as
        exp/robustness/models/continual-more exp/minisqa/models/ctc exp/minisqa/corpus
        exp/robustness/minisqa-en-robust "recipes/robustness"
    python recipes/ship.py scores OUT EXP... NAME=EXP
        puts the scores of `speechssl evaluate qa` in EXP... into the cards of the set OUT; NAME:
        the synthesiser, if it is another than in the others
    python recipes/ship.py vocabulary READER CORPUS OUT
        writes a reader of text with as many tokens as ship, to be trained further
    python recipes/ship.py text-qa READER CORPUS OUT RECIPE
        replaces the reader of text in the set OUT

A set has a folder with card.json for every part (encoder, dual, speechbert, ctc, text-qa), and
units.safetensors and words.safetensors with their cards, units.card.json and words.card.json,
beside them. The encoder is rounded to int8 here, if it is not already, after units, recogniser and
SpeechBERT were made for it: their cards get the hash of the rounded weights as `encoder`, and keep
that of the weights before as `made_for`. Scores are of the set after rounding.
"""

import json
import shutil
from collections import Counter
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from speechssl.artifacts import hash_files, read_json, replace_file, write_json
from speechssl.cli import run_program
from speechssl.data.records import QUESTIONS, load_corpus
from speechssl.dual.model import load_reader, save_reader
from speechssl.encoders.load import hash_folder, load_encoder
from speechssl.errors import InputError
from speechssl.quantisation import dequantise, quantise
from speechssl.results import name_condition, read_rows

LIMIT = 45.0  # MB
# of text-qa's 30,522 tokens; the others would be 8 MB of rare English words, names and other
# scripts
VOCABULARY = 8900
FILES = ("*.safetensors", "config.json", "preprocessor_config.json", "card.json", QUESTIONS)
CASCADES = ("cascade-ctc", "cascade-ctc-greedy")
SCORES_OF_DUAL = [("dual", "ff1"), ("dual", "aos")]
# part -> systems and metrics whose scores its card gets; the encoder and the units get DUAL's
SCORES = {
    "encoder": SCORES_OF_DUAL,
    "units": SCORES_OF_DUAL,
    "dual": SCORES_OF_DUAL,
    "ctc": [(cascade, "wer") for cascade in CASCADES],
    "text-qa": [
        ("text", "ff1"),
        *product(CASCADES, ["ff1"]),
        *product(("cascade-whisper-tiny.en", "cascade-whisper-base"), ("ff1", "wer")),
    ],
    "speechbert": [("speechbert", "ff1"), ("speechbert", "aos")],
}
ENTRIES = ("value", "low", "high", "n", "drawn", "groups")  # of a score in a card
CONTAINS = "all-MiniLM-L6-v2, Apache-2.0"  # the text encoder that the readers began as
LICENCE = "Apache-2.0"  # of the set, as of the package
SHARE_ALIKE = "CC BY-SA 4.0"  # of a reader that was trained on SQuAD's texts, as of these
READERS = ("dual", "text-qa", "speechbert")
TEXT_PARTS = ("text-qa", "ngram")  # their weights derive from text alone


def ship_text_qa(reader: Path, corpus: Path, out: Path, recipe: str) -> None:
    """Replace the reader of text in the set `out`. corpus: that on which it was trained, whose
    commonest tokens are kept."""
    shutil.rmtree(out / "text-qa")
    cut_vocabulary(reader, corpus, out / "text-qa")
    update_card(out, "text-qa", recipe=recipe, scores={})
    add_licences(out)
    check_size(out)


def card_path(out: Path, part: str) -> Path:
    """Return where the card of a part of a set is."""
    return out / f"{part}.card.json" if part in ("units", "words") else out / part / "card.json"


def ship_set(models: Path, ctc: Path, corpus: Path, out: Path, recipe: str) -> None:
    """Make the set `out`. models: folder of the run; ctc: folder of its recogniser; corpus: that on
    which the reader of text was trained; recipe: its name on the cards."""
    for part in ("encoder", "dual", "speechbert", "ctc"):
        (out / part).mkdir(parents=True, exist_ok=True)
        source = ctc if part == "ctc" else models / part
        for pattern in FILES:
            for path in source.glob(pattern):
                shutil.copyfile(path, out / part / path.name)
    if (ctc / "ngram").is_dir():
        shutil.copytree(
            ctc / "ngram",
            out / "ctc/ngram",
            ignore=shutil.ignore_patterns("made_from.json"),
            dirs_exist_ok=True,
        )
    for path in (*models.glob("*.safetensors"), *models.glob("*.card.json")):  # codebooks
        shutil.copyfile(path, out / path.name)

    # dequantise makes float32 of bf16, and of what is int8 already
    weights = dequantise(load_file(models / "encoder/model.safetensors"))
    save_weights(quantise(weights, kernels=True), out / "encoder/model.safetensors")
    head = out / "ctc/head.safetensors"
    save_weights(quantise(dequantise(load_file(ctc / "head.safetensors"))), head)
    update_card(out, "encoder", files=hash_folder(out / "encoder"))
    rounded_hash = load_encoder(out / "encoder").hash
    for part in ("units", "words", "ctc"):
        if card_path(out, part).is_file():
            hash_before = read_json(card_path(out, part))["encoder"]
            if hash_before != rounded_hash:
                update_card(out, part, encoder=rounded_hash, made_for=hash_before)
    head_before = read_json(card_path(out, "ctc"))["weights"]
    update_card(out, "ctc", weights=hash_files([head]), trained=head_before)
    features = read_json(card_path(out, "speechbert"))["features"]
    hash_before = features["encoder"]
    features["encoder"] = rounded_hash
    update_card(out, "speechbert", features=features, made_for=hash_before)

    cut_vocabulary(models / "text-qa", corpus, out / "text-qa")
    for part in SCORES:
        card = read_json(card_path(out, part))
        recipe_of_part = recipe
        if "transferred" in card:
            recipe_of_part = f"recipes/units/readers.sh, base.yaml; transferred: {recipe}"
        # a card that names its recipe keeps it; units keep what was measured of them alone
        scores = card.get("scores", {}) if part == "units" else {}
        card = {"recipe": recipe_of_part} | card | {"scores": scores}
        write_json(card_path(out, part), card)
    add_licences(out)
    check_size(out)


def check_size(out: Path) -> None:
    """Print the size of a set. Raises InputError where it is larger than LIMIT."""
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    print(f"{out}: {size:.2f} MB")
    if size > LIMIT:
        raise InputError(f"{out} is larger than {LIMIT:g} MB; make VOCABULARY smaller")


def update_card(out: Path, part: str, **entries: Any) -> None:
    """Set entries of the card of a part."""
    write_json(card_path(out, part), read_json(card_path(out, part)) | entries)


def save_weights(state: dict[str, torch.Tensor], path: Path) -> None:
    with replace_file(path) as temporary:
        save_file(state, temporary, {"format": "pt"})


def cut_vocabulary(source: Path, corpus: Path, out: Path) -> None:
    """Write a reader of text with its VOCABULARY most useful tokens.

    WordPiece takes the longest token that fits, so a word whose pieces are all kept is split as
    before.
    """
    model, layout, card = load_reader(source)
    tokenizer = AutoTokenizer.from_pretrained(source)
    ids = choose_tokens(tokenizer, corpus)
    new_ids = {old: new for new, old in enumerate(ids)}
    model.embedding = torch.nn.Embedding.from_pretrained(model.embedding.weight[torch.tensor(ids)])
    specials = {name: new_ids[getattr(layout, name)] for name in ("cls", "sep", "pad")}
    layout = replace(layout, **specials)
    contents = read_json(source / "tokenizer.json")
    old_ids = contents["model"]["vocab"]
    contents["model"]["vocab"] = {t: new_ids[i] for t, i in old_ids.items() if i in new_ids}
    for token in contents["added_tokens"]:
        token["id"] = new_ids[token["id"]]
    for token in contents["post_processor"]["special_tokens"].values():
        token["ids"] = [new_ids[i] for i in token["ids"]]
    out.mkdir(parents=True, exist_ok=True)
    compact = json.dumps(contents, ensure_ascii=False, separators=(",", ":"))
    (out / "tokenizer.json").write_text(compact, "utf-8")
    for name in ("tokenizer_config.json", QUESTIONS):
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)
    vocabulary = {"kept": len(ids), "of": len(tokenizer), "trained": card["weights"]}
    save_reader(out, model, layout, card | {"vocabulary": vocabulary})


def choose_tokens(tokenizer: PreTrainedTokenizerBase, corpus: Path) -> list[int]:
    """Choose VOCABULARY ids, in their old order: specials, single letters and signs, the commonest
    tokens of the training texts, then the first of the vocabulary, whose order is that of frequency
    in English."""
    tokens = {number: token for token, number in tokenizer.get_vocab().items()}
    data = load_corpus(corpus, "train")
    texts = [record.text for record in (*data.passages.values(), *data.questions)]
    counts = Counter(chain.from_iterable(tokenizer(texts, add_special_tokens=False)["input_ids"]))
    commonest = [number for number, _ in counts.most_common()]
    english = [i for i, t in sorted(tokens.items()) if t.isascii() and "[unused" not in t]
    single = [i for i in english if len(tokens[i].removeprefix("##")) == 1]
    ranked = [*tokenizer.all_special_ids, *single, *commonest, *english, *sorted(tokens)]
    return sorted(list(dict.fromkeys(ranked))[:VOCABULARY])


def add_licences(out: Path) -> None:
    """Write `license` and `attribution`, the sources of its weights, into every card of a set, and
    `licences` into those of readers that have none from their training.

    The sources of the encoder are on its own card; codebooks, recogniser and readers of sound
    derive from the encoder, so that they have its sources as well.
    """
    encoder = read_json(card_path(out, "encoder"))
    encoder_sources = encoder.get("attribution") or read_sources(encoder)
    for path in sorted(out.rglob("*card.json")):
        card = read_json(path)
        part = path.parent.name  # that of the set for a codebook
        trained_on = read_sources(card)
        sources = list(trained_on) if part != "encoder" else []
        if part in TEXT_PARTS:
            sources = [text for text in sources if not text.startswith("speech by")]
        else:
            sources += encoder_sources
        licence = LICENCE
        if part in READERS:
            sources.append(CONTAINS)
            card = {"licences": {"trained_on": trained_on, "contains": [CONTAINS]}} | card
            if any(SHARE_ALIKE in text for text in trained_on):
                licence = SHARE_ALIKE
        write_json(path, card | {"license": licence, "attribution": list(dict.fromkeys(sources))})


def read_sources(card: dict) -> list[str]:
    """Return the sentences of a card about its corpus: the synthesiser, and licences."""
    corpus = card.get("corpus") or {}
    return [corpus[name] for name in ("synthetic", "licence", "licences") if corpus.get(name)]


def add_scores(out: Path, *folders: str) -> None:
    """Add scores to the cards by names such as "dual ff1, pink 5 dB".

    folders: EXP or NAME=EXP, for a score such as "dual ff1, NAME" or "dual ff1, NAME, pink 5 dB".
    """
    rows = []
    for folder in folders:
        synthesiser, _, path = folder.rpartition("=")
        for row in read_rows(Path(path) / "results.jsonl"):
            condition = name_condition(row.condition, row.snr_db)
            if synthesiser:
                condition = synthesiser if condition == "clean" else f"{synthesiser}, {condition}"
            rows.append((row, condition))
    for part, systems_and_metrics in SCORES.items():
        scores = read_json(card_path(out, part))["scores"]
        for row, condition in rows:
            if (row.name, row.metric) in systems_and_metrics:
                entries = {}
                for name in ENTRIES:
                    value = getattr(row, name)
                    entries[name] = round(value, 3) if isinstance(value, float) else value
                scores[f"{row.name} {row.metric}, {condition}"] = entries
        update_card(out, part, scores=scores)
    check_size(out)


if __name__ == "__main__":
    run_program(ship_set, scores=add_scores, vocabulary=cut_vocabulary, text_qa=ship_text_qa)
