"""Unsupervised token translation (arXiv 2010.10041): the language vector, mean state of the second language less that of the first,
is added alpha times to the output of a layer, and the head for masked tokens says what every token of a sentence has become.

Scored are the share of tokens that are now the second language's (those that its text has more often), and, where words of the
lexicon stood, how many of the tokens are among those of the translations of the piece, each as often as it is there (BLEU-1's
precision, on that part of the text). Letters: B sequences, S tokens in a sequence, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForMaskedLM

from speechssl.dual.data import collate
from speechssl.errors import InputError
from speechssl.io import checkpoint_folder, stage
from speechssl.shift import changed, check_layer
from speechssl.text_side.config import LanguageOptions
from speechssl.text_side.languages import Body, Sequence_, card_options, load_body, room_of, states_of, two_languages
from speechssl.text_side.objectives import MLM_HEAD, TokenHead
from speechssl.text_side.published import CONVERTED, PRECISION
from speechssl.text_side.runs import encoder_named, run_folder, write_scores
from speechssl.textlm import load_text_encoder, reason_of, special_tokens

PIECE = 24  # tokens that are translated together
EXAMPLES = 4
Predict = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # ids, mask (B, S) -> (B, S, V)


def load_predictor(name: str) -> tuple[Body, Predict]:
    """An encoder and what predicts tokens of its outputs. Raises InputError for an encoder that has no such head."""
    remedy = "give one that was pre-trained by masked tokens, such as bert-base-multilingual-cased, or of `speechssl pretrain text`"
    if (path := Path(name) / MLM_HEAD).is_file():
        body = load_body(name)
        head = TokenHead(body.encoder.config.hidden_size, body.table.embedding_dim, body.table.num_embeddings)
        head.load_state_dict(load_file(path))
        head.eval().requires_grad_(False).to(body.device)
        return body, lambda ids, mask: head(body(ids, mask), body.table.weight)
    tokenizer = load_text_encoder(name)[1]
    try:
        loader: Any = AutoModelForMaskedLM
        source = checkpoint_folder(name, "text encoder")
        whole, info = loader.from_pretrained(source, dtype=torch.float32, output_loading_info=True, trust_remote_code=False)
        lacking = sorted(key for key in info["missing_keys"] if "pooler" not in key)
    except Exception as error:  # transformers and safetensors each raise their own
        raise InputError(f"the text encoder {name} has no head that predicts tokens ({reason_of(error)}); {remedy}") from error
    if lacking:
        raise InputError(f"the text encoder {name} has no head that predicts tokens (it lacks {lacking[0]}); {remedy}")
    table = nn.Embedding.from_pretrained(whole.get_input_embeddings().weight.detach().clone())
    body = Body(whole.base_model, table, tokenizer)
    whole.eval().to(body.device)
    return body, lambda ids, mask: whole(**body.inputs(table(ids), mask, None)).logits


@torch.inference_mode()
def predicted(body: Body, predict: Predict, sequences: Sequence[Sequence_], batch: int) -> list[np.ndarray]:
    """The likeliest token at every place of each sequence, (S,); never a special."""
    cls, sep, pad = special_tokens(body.tokenizer)
    special = torch.tensor(sorted(set(body.tokenizer.all_special_ids)), device=body.device)
    found = []
    for start in range(0, len(sequences), batch):
        some = sequences[start : start + batch]
        framed = collate([(np.concatenate([[cls], ids, [sep]]), len(ids) + 2) for ids, _ in some], pad)
        logits = predict(framed["ids"].to(body.device), framed["mask"].to(body.device)).index_fill(2, special, -torch.inf)
        tokens = logits.argmax(2).cpu().numpy()
        found += [row[1 : 1 + len(ids)] for row, (ids, _) in zip(tokens, some, strict=True)]
    return found


def translate(
    first: Path,
    second: Path,
    encoder: str,
    results: Path,
    arm: str,
    layers: Sequence[int],
    alphas: Sequence[float],
    o: LanguageOptions,
) -> str:
    """Translate pieces of the first text (once) and score them, for every layer and alpha; a line that says what came out.

    Raises InputError for an encoder that predicts no tokens, a layer that there is not, or a lexicon without words of the text.
    """
    if o.units or o.second_units:
        raise InputError("units have no words that could be read as a translation; leave out --units and --second-units")
    folder = run_folder(results, "translation", arm, o.seed)
    two, named = two_languages(first, second, o), encoder_named(encoder)
    settings = card_options(o) | {"layers": list(layers), "alphas": list(alphas)}
    with stage(folder, {**two.inputs, **named}, settings) as step:
        if not step.done:
            body, predict = load_predictor(encoder)
            for layer in layers:
                check_layer(body.encoder, layer)
            whole = [two.sequences(i, (), body, room_of(body, o.length)) for i in (0, 1)]
            means = [states_of(body, some, 0, o.batch).mean for some in whole]
            often = [np.bincount(np.concatenate([i for i, _ in some]), minlength=body.table.num_embeddings) for some in whole]
            shares = [counts / counts.sum() for counts in often]
            theirs = shares[1] > shares[0]  # (V,) tokens of the second language

            words = sorted({a for a, _ in two.pairs})
            golds: dict[str, set[int]] = {word: set() for word in words}
            for a, b in two.pairs:
                golds[a].update(body.tokenizer(b, add_special_tokens=False)["input_ids"])
            pieces = [p for p in two.sequences(0, words, body, min(PIECE, room_of(body, o.length))) if p[1]]
            if not pieces:
                raise InputError(f"the text {first.name} has no word of the lexicon {o.lexicon}; give a lexicon of this text")
            gloss = [Counter(t for w, _, _ in places for t in golds[words[w]]) for _, places in pieces]
            places_of = [sum(b - a for _, a, b in places) for _, places in pieces]
            same = {t: [min(g[t], n) / n for g, n in zip(gloss, places_of, strict=True)] for t in set().union(*gloss)}
            guess = max(float(np.mean(some)) for some in same.values())  # with one and the same token everywhere

            cells = []
            for layer in layers:
                vector = torch.from_numpy(means[1][layer] - means[0][layer]).float().to(body.device)
                for alpha in alphas:
                    with changed(body.encoder, layer, partial(torch.add, alpha * vector)):
                        made = predicted(body, predict, pieces, o.batch)
                    converted, precision = {}, {}
                    for n, (tokens, (_, places)) in enumerate(zip(made, pieces, strict=True)):
                        stood = [int(t) for _, a, b in places for t in tokens[a:b]]
                        converted[str(n)] = (1.0, float(theirs[tokens].mean()))
                        precision[str(n)] = (1.0, (Counter(stood) & gloss[n]).total() / len(stood))
                    cell: dict[str, Any] = {"layer": layer, "alpha": alpha}
                    for name, items in ((CONVERTED, converted), (PRECISION, precision)):
                        task = f"{name}-{layer}x{alpha:g}"
                        target = results / "runs" / task / f"{arm}-{o.seed}"
                        target.mkdir(parents=True, exist_ok=True)
                        about = named | {"options": settings, "curve": [], "constant": guess}
                        cell[name] = write_scores(results, target, task, name, arm, o.seed, items, about)["value"]
                    cell["examples"] = [
                        [body.tokenizer.decode(ids) for ids in pair]
                        for pair in zip((i for i, _ in pieces[:EXAMPLES]), made, strict=False)
                    ]
                    cells.append(cell)
            step.finish({"what": "token translation", "cells": cells, "constant": guess, "pieces": len(pieces)})
        card = step.card
    best = max(card["cells"], key=lambda cell: cell["precision"])
    return (
        f"{folder}: at layer {best['layer']}, alpha {best['alpha']:g}: {best['converted']:.1f} % of the tokens converted, "
        f"precision {best['precision']:.1f} % (one token everywhere: {100 * card['constant']:.1f} %), {card['pieces']} pieces "
        f"({arm}, seed {o.seed})"
    )
