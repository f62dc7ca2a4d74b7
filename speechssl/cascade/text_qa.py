"""Text QA, the reader of the cascade: examples from the words of a corpus, training, and answers from transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import nn

from speechssl.cascade.words import Transcript
from speechssl.data.records import Corpus, Passage, Question, data_hash, load_corpus
from speechssl.dual.data import Example, answer_times
from speechssl.dual.decode import Reader
from speechssl.dual.model import SpanModel
from speechssl.dual.system import TimedAnswer
from speechssl.dual.train import check_shares, fit_spans, layout_of
from speechssl.errors import tell_set_aside
from speechssl.io import read_json, stage
from speechssl.processes import is_main
from speechssl.text import pieces
from speechssl.textlm.config import QaOptions
from speechssl.textlm.encoders import TextCodec, load_text_encoder, pad_id
from speechssl.textlm.symbols import character_encoder, subword_units


def train_text(corpus: Path, out: Path, options: QaOptions) -> None:
    """Train text QA on the words of a split; once. The tokeniser is saved beside the model.

    Questions whose answer has neither times nor an offset with words of the passage there are listed and left out.
    Raises InputError where `out` holds a reader that was made from other inputs.
    """
    check_shares(options)
    with stage(out, {"data": data_hash(corpus, options.split)}, asdict(options)) as step:
        if step.done:
            return
        data = load_corpus(corpus, options.split)
        encoder, tokenizer = load_text_encoder(options.text_encoder)
        if options.characters:  # these get rows of the encoder's embedding table
            texts = [*(p.written for p in data.passages.values()), *(q.written for q in data.questions)]
            encoder, table, tokenizer = character_encoder(encoder, tokenizer, texts, options.training.seed)
        else:
            rows = encoder.get_input_embeddings().weight.detach()
            table = nn.Embedding.from_pretrained(rows.clone(), freeze=False)
        layout = layout_of(options, tokenizer.cls_token_id, tokenizer.sep_token_id, pad_id(tokenizer))
        examples, left_out = text_examples(data, TextCodec(tokenizer))
        tell_set_aside(left_out, "training of text QA", "question")
        torch.manual_seed(options.training.seed)
        model = SpanModel(encoder, table, subword_units(tokenizer, options.subwords, table.num_embeddings, table.embedding_dim))
        if is_main():
            tokenizer.save_pretrained(out)
        card = {"what": "text QA", "text_encoder": options.text_encoder, "corpus": read_json(corpus / "card.json")}
        card |= {"subwords": options.subwords, "characters": options.characters, "left_out": len(left_out)}
        fit_spans(model, examples, layout, options, out, card)


def text_examples(data: Corpus, codec: TextCodec) -> tuple[list[Example], dict[str, str]]:
    """One example a question, from what is written of its passage; and the questions left out: id -> why."""
    found, left_out = [], {}
    for question in data.answerable:
        passage = data.passages[question.passage]
        words, span = answer_words(passage, question)
        if span is None:
            left_out[question.id] = f"no word of passage {passage.id} lies within the times, or at the offset, of its answer"
            continue
        example = text_example(codec, [word for word, _ in pieces(question.written, question.language)], words, *span)
        if example is None:
            left_out[question.id] = "the tokeniser leaves nothing of its question or answer"
        else:
            found.append(example)
    return found, left_out


def answer_words(passage: Passage, question: Question) -> tuple[list[str], tuple[int, int] | None]:
    """The passage's words, and the first and last of the answer: those within its times, where words have times; else those at
    its offset; None where there are none.
    """
    times = answer_times(question)
    if passage.words and times is not None:
        middles = np.array([(w.start + w.end) / 2 for w in passage.words])
        inside = np.flatnonzero((middles >= times[0]) & (middles < times[1]))
        return [w.text for w in passage.words], (int(inside[0]), int(inside[-1])) if len(inside) else None
    found = pieces(passage.written, passage.language)
    offset = next(((a.char_start, a.char_start + len(a.text)) for a in question.answers if a.char_start is not None), (0, 0))
    touched = [i for i, (word, start) in enumerate(found) if start < offset[1] and start + len(word) > offset[0]]
    return [word for word, _ in found], (touched[0], touched[-1]) if touched else None


def text_example(codec: TextCodec, question: Sequence[str], passage: Sequence[str], first: int, last: int) -> Example | None:
    """A training example from words; first, last: the answer's words in the passage. None when they have no token."""
    asked, _ = codec.encode(question)
    ids, owners = codec.encode(passage)
    inside = np.flatnonzero((owners >= first) & (owners <= last))
    return Example(asked, ids, int(inside[0]), int(inside[-1])) if len(inside) else None


def answer_transcripts(codec: TextCodec, reader: Reader, items: Sequence[tuple[Transcript, Transcript]]) -> list[TimedAnswer]:
    """(question, passage) transcripts -> answers. A passage in which nothing was recognised gives an empty answer at 0 s.

    Times are nan where those of the words are.
    """
    coded = [tuple(codec.encode([w.text for w in transcript.words]) for transcript in item) for item in items]
    usable = [i for i, (_, (ids, _)) in enumerate(coded) if len(ids)]
    choices = reader.read_many([(coded[i][0][0], coded[i][1][0]) for i in usable])
    answers = [TimedAnswer(0.0, 0.0, 0.0, "") for _ in items]
    for i, choice in zip(usable, choices, strict=True):
        passage, owners = items[i][1], coded[i][1][1]
        words = passage.words[owners[choice.first] : owners[choice.last] + 1]
        text = passage.separator.join(w.text for w in words)
        answers[i] = TimedAnswer(words[0].start, words[-1].end, choice.confidence, text)
    return answers
