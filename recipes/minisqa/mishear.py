"""Write questions (SQuAD JSON) about passages as a recogniser would have heard them.

    python recipes/minisqa/mishear.py QUESTIONS CORPUS SPLIT OUT

The errors are fitted on half of the articles of a prepared corpus that has texts and transcripts of
a recogniser (ODSQA), and made at the rate of the fit (`confusions.py` says how). OUT/train.json and
OUT/dev.json are those of QUESTIONS with such errors in the passages; an answer is what stands where
it stood, and a question without one is left out. OUT/fitted.txt has the ids of the passages of the
fit: test on the others.
"""

import json
import random
import re
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from confusions import ConfusionModel, fit_confusions, spell_words

from speechssl.cli import run_program
from speechssl.data.records import load_corpus
from speechssl.data.squad import Paragraph, read_squad
from speechssl.errors import InputError

PIECE = re.compile(r"[0-9A-Za-z]+|\w")  # what is recognised as one: a Chinese character, a number


def mishear(
    model: ConfusionModel, text: str, wer: float, name: str, seed: int
) -> tuple[str, list[int]]:
    """Make errors in a text, and keep its punctuation. Returns the new text and, for each of the
    len(text) + 1 borders of characters, its place there."""
    pieces = list(PIECE.finditer(text))
    spelt = [spell_words(piece.group(), model.language) for piece in pieces]
    owners = [i for i, words in enumerate(spelt) for _ in words]
    heard: list[list[str]] = [[] for _ in pieces]
    words = [word for words_of_piece in spelt for word in words_of_piece]
    for edit in model.simulate(words, wer, name, seed):
        heard[owners[edit.position]].append(edit.word)
    new, places, end = "", [], 0
    for piece, before, after in zip(pieces, spelt, heard, strict=True):
        for character in text[end : piece.start()]:
            places.append(len(new))
            new += character
        # a border inside a piece moves to its beginning
        places += [len(new)] * len(piece.group())
        new += piece.group() if after == before else "".join(after)
        end = piece.end()
    for character in text[end:]:
        places.append(len(new))
        new += character
    return new, [*places, len(new)]


def mishear_paragraph(
    model: ConfusionModel, paragraph: Paragraph, wer: float, seed: int
) -> tuple[str, list[dict[str, Any]]]:
    """Return the context of a paragraph with errors, and its questions as SQuAD JSON has them."""
    context, places = mishear(model, paragraph.context, wer, paragraph.id, seed)
    qas = []
    for qa in paragraph.qas:
        answers = []
        for answer in qa.answers:
            if answer.offset is None:
                continue
            start, end = places[answer.offset], places[answer.offset + len(answer.text)]
            if context[start:end].strip():
                answers.append({"text": context[start:end], "answer_start": start})
        if answers:
            qas.append({"id": qa.id, "question": qa.question, "answers": answers})
    return context, qas


def draw_articles(passages: list[str], seed: int) -> set[str]:
    """Draw half of the articles, and return the ids of their passages, ARTICLE-PARAGRAPH."""
    articles = sorted({name.rpartition("-")[0] for name in passages})
    random.Random(seed).shuffle(articles)
    drawn = set(articles[::2])
    return {name for name in passages if name.rpartition("-")[0] in drawn}


def main(o: Namespace) -> None:
    corpus = load_corpus(o.corpus, o.split)
    transcribed = [p for p in corpus.passages.values() if p.text and p.transcript]
    if not transcribed:
        raise InputError(f"{o.corpus / o.split} has no texts with transcripts to fit errors on")
    fitted = draw_articles([p.id for p in transcribed], o.seed)
    pairs = [(p.text, p.transcript) for p in transcribed if p.id in fitted]
    model = fit_confusions(pairs, corpus.language)
    wer = model.rates.wer
    print(f"fitted on {len(pairs)} of {len(transcribed)} passages: {100 * wer:.1f} % errors")
    o.out.mkdir(parents=True, exist_ok=True)
    (o.out / "fitted.txt").write_text("".join(f"{name}\n" for name in sorted(fitted)))
    for split in ("train", "dev"):
        paragraphs = read_squad(o.questions / f"{split}.json")
        data, after = [], 0
        for paragraph in paragraphs:
            context, qas = mishear_paragraph(model, paragraph, wer, o.seed)
            passage = {"context": context, "qas": qas}
            data.append({"title": paragraph.title, "paragraphs": [passage]})
            after += len(qas)
        (o.out / f"{split}.json").write_text(json.dumps({"data": data}, ensure_ascii=False))
        before = sum(len(p.qas) for p in paragraphs)
        print(f"{o.out / split}.json: {len(data)} passages, {after} of {before} questions")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path, help="folder with train.json and dev.json")
    parser.add_argument("corpus", type=Path, help="prepared corpus with transcripts")
    parser.add_argument("split", help="its split")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    run_program(main, parser)
