"""Translate tokens by the difference between the mean states of two languages (arXiv 2010.10041).

A token belongs to the second language if its text has it more often. Precision is that of BLEU-1 on
the places of words of the lexicon: a token is right if it is among the translations of the piece's
words, each as often as it is there. Letters: B sequences, S tokens in a sequence, V vocabulary.
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
EXAMPLES = 4  # pieces whose translation is on the card
Predict = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # ids, mask (B, S) -> (B, S, V)


def load_predictor(name: str) -> tuple[languages.Body, Predict]:
    """Return an encoder, and a function that predicts tokens from its outputs. Raises InputError
    for an encoder without such a head."""
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
    body: languages.Body, predict: Predict, sequences: Sequence[languages.WordSequence], batch: int
) -> list[np.ndarray]:
    """Return the likeliest token at every place of each sequence, (S,); specials are excluded."""
    special = torch.tensor(sorted(set(body.tokenizer.all_special_ids)), device=body.device)
    guesses = []
    for start in range(0, len(sequences), batch):
        pieces = sequences[start : start + batch]
        logits = predict(*languages.pad_pieces(body, pieces)).index_fill(2, special, -torch.inf)
        tokens = logits.argmax(2).cpu().numpy()
        guesses += [row[1 : 1 + len(ids)] for row, (ids, _) in zip(tokens, pieces, strict=True)]
    return guesses


def translate(o: Translate) -> None:
    """Translate pieces of the first text (once) and score them, for every layer and alpha.

    Raises InputError for an encoder that predicts no tokens, or a layer that there is not.
    """
    folder = run_folder(o.results, "translation", o.arm, o.seed)
    data, identity = languages.read_languages(o), describe_encoder(o.encoder)
    options = keep_decisive(o)
    details = identity | {"options": options}
    inputs = {**data.inputs, **identity}
    card = run_once(folder, inputs, options, lambda: translate_text(data, details, o))
    best = max(card["cells"], key=lambda cell: cell["precision"])
    print(
        f"{folder}: at layer {best['layer']}, alpha {best['alpha']:g}: {best['converted']:.1f} % "
        f"of the tokens converted, precision {best['precision']:.1f} % (one token everywhere: "
        f"{100 * card['constant']:.1f} %), {card['pieces']} pieces ({o.arm}, seed {o.seed})"
    )


def translate_text(
    data: languages.BilingualData, details: dict[str, Any], o: Translate
) -> dict[str, Any]:
    """Translate, write the scores of every layer and alpha, and return the card. details: what
    every card of the run has."""
    body, predict = load_predictor(o.encoder)
    for layer in o.layers:
        check_layer(body.encoder, layer)
    longest = languages.longest_piece(body, o.length)
    texts = [data.read_sequences(side, (), body, longest) for side in languages.SIDES]
    means = [languages.average_states(body, pieces, 0, o.batch).mean for pieces in texts]
    is_second = find_second_tokens(texts, body.table.num_embeddings)
    pieces = find_pieces(data, body, min(PIECE, longest))
    constant = score_constant(pieces)
    cells = []
    for layer, alpha in product(o.layers, o.alphas):
        vector = torch.from_numpy(means[1][layer] - means[0][layer]).float().to(body.device)
        with hook_layer(body.encoder, layer, partial(torch.add, alpha * vector)):
            sequences = [piece.sequence for piece in pieces]
            predicted = predict_tokens(body, predict, sequences, o.batch)
        items: dict[str, dict[str, tuple[float, float]]] = {CONVERTED: {}, PRECISION: {}}
        for n, (tokens, piece) in enumerate(zip(predicted, pieces, strict=True)):
            produced: Counter[int] = Counter()  # tokens at the places of words of the lexicon
            for _, first, stop in piece.places:
                produced.update(tokens[first:stop].tolist())
            right = (produced & piece.translations).total()
            items[CONVERTED][str(n)] = (1.0, float(is_second[tokens].mean()))
            items[PRECISION][str(n)] = (1.0, right / piece.word_tokens)
        cell: dict[str, Any] = {"layer": layer, "alpha": alpha, "examples": []}
        for name, of_pieces in items.items():
            task = f"{name}-{layer}x{alpha:g}"
            facts = details | {"constant": constant}
            card = write_scores(o.results, task, name, o.arm, o.seed, of_pieces, facts)
            cell[name] = card["value"]
        for piece, tokens in zip(pieces[:EXAMPLES], predicted, strict=False):
            ids, _ = piece.sequence
            cell["examples"].append([body.tokenizer.decode(ids), body.tokenizer.decode(tokens)])
        cells.append(cell)
    facts = {"cells": cells, "constant": constant, "pieces": len(pieces)}
    return {"what": "token translation"} | facts


@dataclass(frozen=True, eq=False)
class Piece:
    """A piece of the first text has words of the lexicon, and the tokens of their translations."""

    sequence: languages.WordSequence
    translations: Counter[int]

    @property
    def places(self) -> languages.Places:
        return self.sequence[1]

    @property
    def word_tokens(self) -> int:
        """Count the tokens of words of the lexicon."""
        return sum(stop - first for _, first, stop in self.places)


def score_constant(pieces: Sequence[Piece]) -> float:
    """Return the best precision with one and the same token everywhere."""

    def precision(token: int) -> float:
        shares = (min(p.translations[token], p.word_tokens) / p.word_tokens for p in pieces)
        return float(np.mean(list(shares)))

    return max(precision(token) for token in set().union(*(p.translations for p in pieces)))


def find_second_tokens(
    texts: Sequence[Sequence[languages.WordSequence]], vocabulary: int
) -> np.ndarray:
    """Mark the tokens of the second language, (V,): its text has them more often."""
    shares = []
    for pieces in texts:
        ids = np.concatenate([ids for ids, _ in pieces])
        shares.append(np.bincount(ids, minlength=vocabulary) / len(ids))
    return shares[1] > shares[0]


def find_pieces(data: languages.BilingualData, body: languages.Body, longest: int) -> list[Piece]:
    """Return the pieces of the first text that have words of the lexicon. longest: tokens of a
    piece."""
    words = sorted({a for a, _ in data.pairs})
    tokens: dict[str, set[int]] = {word: set() for word in words}  # of its translations
    for a, b in data.pairs:
        tokens[a].update(body.tokenizer(b, add_special_tokens=False)["input_ids"])
    pieces = []
    for ids, places in data.read_sequences(0, words, body, longest):
        if places:
            translations = Counter(t for word, _, _ in places for t in tokens[words[word]])
            pieces.append(Piece((ids, places), translations))
    return pieces


if __name__ == "__main__":
    sys.exit(script(translate, Translate))
