"""Make a set that ships: an encoder of a finished run with its units, recogniser and readers, as
plain int8 files.

    python recipes/ship.py MODELS CTC CORPUS OUT RECIPE
        such as exp/robustness/models/continual-more exp/minisqa/models/ctc exp/minisqa/corpus
        exp/robustness/minisqa-en-robust "recipes/robustness"
    python recipes/ship.py scores OUT EXP... NAME=EXP
        puts what `speechssl evaluate qa` found in EXP... into the cards; NAME: who speaks there, if
        it is another synthesiser than in the others
    python recipes/ship.py vocabulary READER CORPUS OUT
        a reader of text with as many tokens as ship, to be trained further
    python recipes/ship.py text-qa READER CORPUS OUT RECIPE
        a reader of text in the place of that of the set OUT

The encoder is rounded to int8 here, if it is not already, after units, recogniser and SpeechBERT
were made for it: their cards get the hash of the rounded weights as `encoder`, and keep that of the
others as `made_for`. Scores are of what ships, after rounding.
"""

import json
import shutil
import sys
from collections import Counter
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from speechssl.artifacts import hash_files, read_json, replacing, write_json
from speechssl.data.records import QUESTIONS, load_corpus
from speechssl.dual.model import load_reader, save_reader
from speechssl.encoders.load import file_hashes, load_encoder
from speechssl.quantisation import dequantise, quantise
from speechssl.results import read_rows

LIMIT = 45.0  # MB
# of text-qa's 30,522 tokens; the others would be 8 MB of rare English words, names and other
# scripts
VOCABULARY = 8900
FILES = ("*.safetensors", "config.json", "preprocessor_config.json", "card.json", QUESTIONS)
CASCADES = ("cascade-ctc", "cascade-ctc-greedy")
MEASURED_BY = {  # part -> systems and metrics; the encoder's worth, and the units', is DUAL's
    **{part: list(product(["dual"], ["ff1", "aos"])) for part in ("encoder", "units", "dual")},
    "ctc": [(name, "wer") for name in CASCADES],
    "text-qa": [
        ("text", "ff1"),
        *product(CASCADES, ["ff1"]),
        *product(("cascade-whisper-tiny.en", "cascade-whisper-base"), ("ff1", "wer")),
    ],
    "speechbert": [("speechbert", "ff1"), ("speechbert", "aos")],
}
ENTRIES = ("value", "low", "high", "n", "drawn", "groups")  # of a score in a card
CONTAINS = "all-MiniLM-L6-v2, Apache-2.0"  # the text encoder that the readers began as
LICENCE = "Apache-2.0"  # of what ships, as of the package
SHARE_ALIKE = "CC BY-SA 4.0"  # of a reader that was trained on SQuAD's texts, as of these
READERS = ("dual", "text-qa", "speechbert")
TEXTS = ("text-qa", "ngram")  # parts that know words alone


def ship_text_qa(reader: Path, corpus: Path, out: Path, recipe: str) -> None:
    """Put a reader of text in the place of that of a set. corpus: what it was trained on, of whose
    tokens the commonest stay."""
    shutil.rmtree(out / "text-qa")
    cut_vocabulary(reader, corpus, out / "text-qa")
    update(out, "text-qa", recipe=recipe, scores={})
    add_licences(out)
    check_size(out)


def card_of(out: Path, part: str) -> Path:
    return out / f"{part}.card.json" if part in ("units", "words") else out / part / "card.json"


def ship(models: Path, ctc: Path, corpus: Path, out: Path, recipe: str) -> None:
    for part in ("encoder", "dual", "speechbert", "ctc"):
        (out / part).mkdir(parents=True, exist_ok=True)
        source = ctc if part == "ctc" else models / part
        for path in (path for pattern in FILES for path in source.glob(pattern)):
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
    save(quantise(weights, kernels=True), out / "encoder/model.safetensors")
    head = out / "ctc/head.safetensors"
    save(quantise(dequantise(load_file(ctc / "head.safetensors"))), head)
    update(out, "encoder", files=file_hashes(out / "encoder"))
    rounded = load_encoder(out / "encoder").hash
    for part in ("units", "words", "ctc"):
        if card_of(out, part).is_file():
            before = read_json(card_of(out, part))["encoder"]
            if before != rounded:
                update(out, part, encoder=rounded, made_for=before)
    trained = read_json(card_of(out, "ctc"))["weights"]
    update(out, "ctc", weights=hash_files([head]), trained=trained)
    features = read_json(card_of(out, "speechbert"))["features"]
    made_for = features["encoder"]
    update(out, "speechbert", features=features | {"encoder": rounded}, made_for=made_for)

    cut_vocabulary(models / "text-qa", corpus, out / "text-qa")
    # some name the recipe that trained them; units keep what was measured of them alone
    for part in MEASURED_BY:
        card = read_json(card_of(out, part))
        by = recipe
        if "transferred" in card:
            by = f"recipes/units/readers.sh, base.yaml; transferred: {recipe}"
        scores = card.get("scores", {}) if part == "units" else {}
        write_json(card_of(out, part), {"recipe": by} | card | {"scores": scores})
    add_licences(out)
    check_size(out)


def check_size(out: Path) -> None:
    """Print the size of a set. Exits where it is larger than LIMIT."""
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    print(f"{out}: {size:.2f} MB")
    if size > LIMIT:
        sys.exit(f"{out} is larger than {LIMIT:g} MB; make VOCABULARY smaller, and ship again")


def update(out: Path, part: str, **entries: Any) -> None:
    """Set entries of the card of a part."""
    write_json(card_of(out, part), read_json(card_of(out, part)) | entries)


def save(state: dict[str, torch.Tensor], path: Path) -> None:
    with replacing(path) as temporary:
        save_file(state, temporary, {"format": "pt"})


def cut_vocabulary(source: Path, corpus: Path, out: Path, size: int = VOCABULARY) -> None:
    """Write a reader of text with its `size` most useful tokens.

    WordPiece takes the longest token that fits, so a word whose pieces are all kept is cut as
    before.
    """
    model, layout, card = load_reader(source)
    tokenizer = AutoTokenizer.from_pretrained(source)
    kept = useful_tokens(tokenizer, corpus, size)
    numbers = {old: new for new, old in enumerate(kept)}
    model.embedding = torch.nn.Embedding.from_pretrained(model.embedding.weight[torch.tensor(kept)])
    specials = {name: numbers[getattr(layout, name)] for name in ("cls", "sep", "pad")}
    layout = replace(layout, **specials)
    described = read_json(source / "tokenizer.json")
    vocab = described["model"]["vocab"]
    described["model"]["vocab"] = {t: numbers[i] for t, i in vocab.items() if i in numbers}
    for token in described["added_tokens"]:
        token["id"] = numbers[token["id"]]
    for token in described["post_processor"]["special_tokens"].values():
        token["ids"] = [numbers[i] for i in token["ids"]]
    out.mkdir(parents=True, exist_ok=True)
    compact = json.dumps(described, ensure_ascii=False, separators=(",", ":"))
    (out / "tokenizer.json").write_text(compact, "utf-8")
    for name in ("tokenizer_config.json", QUESTIONS):
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)
    vocabulary = {"kept": len(kept), "of": len(tokenizer), "trained": card["weights"]}
    save_reader(out, model, layout, card | {"vocabulary": vocabulary})


def useful_tokens(tokenizer: PreTrainedTokenizerBase, corpus: Path, size: int) -> list[int]:
    """Return `size` ids in their old order, which is that of frequency in English: single letters
    and signs, then the commonest of the training texts, then the commonest of English."""
    tokens = {number: token for token, number in tokenizer.get_vocab().items()}
    data = load_corpus(corpus, "train")
    texts = [record.text for record in (*data.passages.values(), *data.questions)]
    used = Counter(chain.from_iterable(tokenizer(texts, add_special_tokens=False)["input_ids"]))
    ascii_ones = [i for i, t in sorted(tokens.items()) if t.isascii() and "[unused" not in t]
    single = [i for i in ascii_ones if len(tokens[i].removeprefix("##")) == 1]
    ranked = [*tokenizer.all_special_ids, *single, *(i for i, _ in used.most_common()), *ascii_ones]
    return sorted(list(dict.fromkeys([*ranked, *sorted(tokens)]))[:size])


def add_licences(out: Path) -> None:
    """Write `license` and `attribution` into every card of a set: what its weights were trained on
    or derive from; and `licences` in those of readers that training gave none.

    What the encoder derives from, its own card says; codebooks, recogniser and readers of sound
    derive from the encoder.
    """
    encoder = read_json(card_of(out, "encoder"))
    derived = encoder.get("attribution") or trained_on(encoder)
    for path in sorted(out.rglob("*card.json")):
        card, part = read_json(path), path.parent.name
        sources = trained_on(card) if part != "encoder" else []
        if part in TEXTS:
            sources = [text for text in sources if not text.startswith("speech by")]
        sources = sources + (derived if part not in TEXTS else [])
        sources = sources + ([CONTAINS] if part in READERS else [])
        if part in READERS:
            card = {"licences": {"trained_on": trained_on(card), "contains": [CONTAINS]}} | card
        of_squad = any(SHARE_ALIKE in text for text in trained_on(card))
        licence = SHARE_ALIKE if part in READERS and of_squad else LICENCE
        write_json(path, card | {"license": licence, "attribution": list(dict.fromkeys(sources))})


def trained_on(card: dict) -> list[str]:
    """Return what a card says of its corpus: who spoke, and licences."""
    corpus = card.get("corpus") or {}
    return [corpus[name] for name in ("synthetic", "licence", "licences") if corpus.get(name)]


def add_scores(out: Path, folders: list[str]) -> None:
    """Add "dual ff1, pink 5 dB" to the cards, and "dual ff1, festival" for a folder that is given
    with that name."""
    rows = []
    for folder in folders:
        speaker, _, path = folder.rpartition("=")
        for row in read_rows(Path(path) / "results.jsonl"):
            condition = row.condition + (f" {row.snr_db:g} dB" if row.snr_db is not None else "")
            if speaker:
                condition = speaker if condition == "clean" else f"{speaker}, {condition}"
            rows.append((row, condition))
    for part, wanted in MEASURED_BY.items():
        scores = read_json(card_of(out, part))["scores"]
        for row, condition in rows:
            if (row.name, row.metric) in wanted:
                entries = {name: getattr(row, name) for name in ENTRIES}
                for name, value in entries.items():
                    entries[name] = round(value, 3) if isinstance(value, float) else value
                scores[f"{row.name} {row.metric}, {condition}"] = entries
        update(out, part, scores=scores)
    check_size(out)


if __name__ == "__main__":
    if sys.argv[1] == "scores":
        add_scores(Path(sys.argv[2]), sys.argv[3:])
    elif sys.argv[1] == "vocabulary":
        cut_vocabulary(*map(Path, sys.argv[2:5]))
    elif sys.argv[1] == "text-qa":
        ship_text_qa(*map(Path, sys.argv[2:5]), recipe=sys.argv[5])
    else:
        ship(*map(Path, sys.argv[1:5]), recipe=sys.argv[5])
