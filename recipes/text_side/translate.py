"""Translate tokens by the difference between the mean states of two languages (arXiv 2010.10041).

A token is the second language's where its text has it more often. Where words of the lexicon stood,
those tokens are right that are among the translations of the piece, each as often as it is there
(BLEU-1's precision, on that part of the text). Letters: B sequences, S tokens in a sequence, V
vocabulary.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from speechssl.cli import script
from speechssl.errors import InputError
from speechssl.options import DEVICE, Whole, argument, option
from speechssl.textlm.layers import check_layer, hook_layer
from textside import languages
from textside.objectives import MLM_HEAD, TokenHead
from textside.options import ARM, RESULTS, TwoLanguages
from textside.published import CONVERTED, PRECISION
from textside.runs import describe_encoder, keep_decisive, run_folder, run_once, write_scores


@dataclass(frozen=True, kw_only=True)
class Translate(TwoLanguages):
    """translate tokens by the difference between the mean hidden states of two languages

    The language vector (mean state of the second language less that of the first) is added, times
    alpha, to the output of a layer, and the masked-language-model head predicts what every token
    becomes. Reported are the share of tokens of the second language, and of tokens that are
    translations by the lexicon. ENCODER is OUT/encoder of `pretrain.py`, which has such a head.

      python recipes/text_side/translate.py minisqa-en minisqa-zh exp/bilingual/encoder \\
        exp/text_side --arm bilingual --layers 1 2 --alphas 0 1 2
    """

    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    layers: tuple[Whole, ...] = option((1,), "layers, 0 is what the first one reads", least=1)
    alphas: tuple[float, ...] = option(
        (0.0, 1.0, 2.0, 3.0), "times that the vector is added; 0: as it is", least=1
    )
    device: str = option("auto", DEVICE)


PIECE = 24  # tokens that are translated together
EXAMPLES = 4
Predict = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # ids, mask (B, S) -> (B, S, V)


def load_predictor(name: str) -> tuple[languages.Body, Predict]:
    """Return an encoder and what predicts tokens of its outputs. Raises InputError for an encoder
    that has no such head."""
    path = Path(name) / MLM_HEAD
    if not path.is_file():
        raise InputError(
            f"{name} has no head that predicts tokens; give OUT/encoder of pretrain.py"
        )
    body = languages.load_body(name)
    head = TokenHead(
        body.encoder.config.hidden_size, body.table.embedding_dim, body.table.num_embeddings
    )
    head.load_state_dict(load_file(path))
    head.eval().requires_grad_(False).to(body.device)
    return body, lambda ids, mask: head(body(ids, mask), body.table.weight)


@torch.inference_mode()
def predict_tokens(
    body: languages.Body, predict: Predict, sequences: Sequence[languages.Sequence_], batch: int
) -> list[np.ndarray]:
    """Return the likeliest token at every place of each sequence, (S,); never a special."""
    special = torch.tensor(sorted(set(body.tokenizer.all_special_ids)), device=body.device)
    guesses = []
    for start in range(0, len(sequences), batch):
        pieces = sequences[start : start + batch]
        logits = predict(*languages.frame_pieces(body, pieces)).index_fill(2, special, -torch.inf)
        tokens = logits.argmax(2).cpu().numpy()
        guesses += [row[1 : 1 + len(ids)] for row, (ids, _) in zip(tokens, pieces, strict=True)]
    return guesses


def translate(o: Translate) -> None:
    """Translate pieces of the first text (once) and score them, for every layer and alpha.

    Raises InputError for an encoder that predicts no tokens, or a layer that there is not.
    """
    folder = run_folder(o.results, "translation", o.arm, o.seed)
    two, identity = languages.read_languages(o), describe_encoder(o.encoder)
    options = keep_decisive(o)
    details = identity | {"options": options}
    inputs = {**two.inputs, **identity}
    card = run_once(folder, inputs, options, lambda: translate_text(two, details, o))
    best = max(card["cells"], key=lambda cell: cell["precision"])
    print(
        f"{folder}: at layer {best['layer']}, alpha {best['alpha']:g}: {best['converted']:.1f} % "
        f"of the tokens converted, precision {best['precision']:.1f} % (one token everywhere: "
        f"{100 * card['constant']:.1f} %), {card['pieces']} pieces ({o.arm}, seed {o.seed})"
    )


def translate_text(two: languages.Two, details: dict[str, Any], o: Translate) -> dict[str, Any]:
    """Translate, write the scores of every layer and alpha, and return the card. details: of every
    run's card."""
    body, predict = load_predictor(o.encoder)
    for layer in o.layers:
        check_layer(body.encoder, layer)
    room = languages.find_room(body, o.length)
    whole = [two.sequences(i, (), body, room) for i in (0, 1)]
    means = [languages.mean_states(body, pieces, 0, o.batch).mean for pieces in whole]
    of_second = find_second_tokens(whole, body.table.num_embeddings)
    pieces, gloss, stood = find_pieces(two, body, min(PIECE, room))
    constant = score_constant(gloss, stood)
    cells = []
    for layer, alpha in product(o.layers, o.alphas):
        vector = torch.from_numpy(means[1][layer] - means[0][layer]).float().to(body.device)
        with hook_layer(body.encoder, layer, partial(torch.add, alpha * vector)):
            guesses = predict_tokens(body, predict, pieces, o.batch)
        items: dict[str, dict[str, tuple[float, float]]] = {CONVERTED: {}, PRECISION: {}}
        for n, (tokens, (_, places)) in enumerate(zip(guesses, pieces, strict=True)):
            # where words stood
            produced = Counter(int(t) for _, a, b in places for t in tokens[a:b])
            items[CONVERTED][str(n)] = (1.0, float(of_second[tokens].mean()))
            items[PRECISION][str(n)] = (1.0, (produced & gloss[n]).total() / stood[n])
        cell: dict[str, Any] = {"layer": layer, "alpha": alpha, "examples": []}
        for name, of_pieces in items.items():
            task = f"{name}-{layer}x{alpha:g}"
            about = details | {"constant": constant}
            card = write_scores(o.results, task, name, o.arm, o.seed, of_pieces, about)
            cell[name] = card["value"]
        for (ids, _), tokens in zip(pieces[:EXAMPLES], guesses, strict=False):
            cell["examples"].append([body.tokenizer.decode(each) for each in (ids, tokens)])
        cells.append(cell)
    facts = {"cells": cells, "constant": constant, "pieces": len(pieces)}
    return {"what": "token translation"} | facts


def score_constant(gloss: Sequence[Counter[int]], stood: Sequence[int]) -> float:
    """Return the best precision with one and the same token everywhere."""
    pairs = list(zip(gloss, stood, strict=True))
    tokens = set().union(*gloss)
    return max(float(np.mean([min(counts[t], n) / n for counts, n in pairs])) for t in tokens)


def find_second_tokens(
    whole: Sequence[Sequence[languages.Sequence_]], vocabulary: int
) -> np.ndarray:
    """Mark the tokens of the second language, (V,): its text has them more often."""
    shares = []
    for pieces in whole:
        ids = np.concatenate([ids for ids, _ in pieces])
        shares.append(np.bincount(ids, minlength=vocabulary) / len(ids))
    return shares[1] > shares[0]


def find_pieces(
    two: languages.Two, body: languages.Body, room: int
) -> tuple[list[languages.Sequence_], list[Counter[int]], list[int]]:
    """Return the pieces of the first text that have words of the lexicon, and of each the tokens of
    these words' translations, and at how many places words stood. room: tokens of a piece."""
    words = sorted({a for a, _ in two.pairs})
    golds: dict[str, set[int]] = {word: set() for word in words}
    for a, b in two.pairs:
        golds[a].update(body.tokenizer(b, add_special_tokens=False)["input_ids"])
    pieces = [piece for piece in two.sequences(0, words, body, room) if piece[1]]
    gloss, stood = [], []
    for _, places in pieces:
        gloss.append(Counter(t for word, _, _ in places for t in golds[words[word]]))
        stood.append(sum(b - a for _, a, b in places))
    return pieces, gloss, stood


if __name__ == "__main__":
    sys.exit(script(translate, Translate))
