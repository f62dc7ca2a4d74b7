"""Train text QA on words: `speechssl train text-qa`.

`train_text_qa` makes examples of a corpus's texts (`make_text_examples`) and trains a span model on
them, from a text encoder or from another reader, evaluated by F1 of words (`make_word_evaluation`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from speechssl.artifacts import begin_stage
from speechssl.cascade.options import TrainTextQa
from speechssl.cascade.readers import TextQa, TrainedReader
from speechssl.cascade.system import make_text_system, read_given_words
from speechssl.data.records import Corpus, Passage, Question, load_corpus, take_first_passages
from speechssl.data.squad import find_touched_words
from speechssl.dual.data import Example, Layout, find_answer_times
from speechssl.dual.fitting import (
    STEPS,
    answer_in_batches,
    collect_reader_facts,
    describe_run,
    fit_spans,
    hash_inputs,
    load_held_out,
    make_layout,
    save_trained,
    select_questions,
    sweep_learning_rates,
    train_seen_tokens,
)
from speechssl.dual.model import SpanModel, load_reader
from speechssl.dual.options import QaOptions
from speechssl.dual.system import Reader
from speechssl.errors import InputError, report_set_aside
from speechssl.metrics import token_f1
from speechssl.options import find_shipped, select_settings
from speechssl.processes import is_main
from speechssl.text import split_pieces
from speechssl.textlm.encoders import load_text_encoder
from speechssl.textlm.layers import SHIFT, Shift, load_shift
from speechssl.textlm.subwords import make_subword_units
from speechssl.textlm.symbols import embed_characters
from speechssl.textlm.tokenizers import TextCodec, find_special_tokens, load_tokenizer
from speechssl.training import Evaluation, check_share


def train_text_qa(o: TrainTextQa) -> None:
    """Train text QA on the words of a split; a finished one is not trained again. The tokeniser is
    saved beside the model, and so is `o.shift`, which is added whenever the model reads.

    Questions are left out and listed where no word of the passage lies within the times, or at the
    offset, of their answer. Raises InputError where OUT holds a reader that was made from other
    inputs, or `o.start` is no text QA.
    """
    if o.learning_rates:
        sweep_learning_rates(o, train_text_qa)
        return
    check_share(o.qa.batch, o.qa.short_batch)
    o = replace(o, start=find_shipped(o.start))
    shift: Shift | None = None
    shift_card: dict[str, Any] = {}
    if o.shift:
        shift, shift_card = load_shift(o.shift)
    made_from = hash_inputs(o, o.qa.split) | {
        "passages": o.passages,
        "shift": shift_card.get("hash"),
    }
    with begin_stage(o.out, made_from, select_settings(o.qa), grows=STEPS) as step:
        if not step.done:
            data = take_first_passages(load_corpus(o.corpus, o.qa.split), o.passages)
            if o.start:
                model, tokenizer, qa = load_start_model(o.start, o.qa)
                o = replace(o, qa=qa)
            else:
                model, tokenizer = make_untrained_model(data, o.qa)
            if shift:
                shift.attach(model.encoder)
            codec = TextCodec(tokenizer)
            examples, left_out = make_text_examples(data, codec)
            report_set_aside(left_out, "training of text QA", "question")

            layout = make_layout(o.qa, *find_special_tokens(tokenizer))
            evaluation = make_word_evaluation(o, model, layout, codec)
            parts = [ids for e in examples for ids in (e.question, e.passage)]
            with train_seen_tokens(model, layout, parts):
                results = fit_spans(model, examples, layout, o.qa, o.out, evaluation)

            if is_main():
                tokenizer.save_pretrained(o.out)
                if shift:
                    shift.save(o.out / SHIFT)
            card: dict[str, Any] = {
                "what": "text QA",
                "text_encoder": o.qa.text_encoder,
                "subwords": o.qa.subwords,
                "characters": o.qa.characters,
                "passages": len(data.passages),
                "left_out": len(left_out),
            }
            if shift:
                card["shift"] = shift_card
            card |= results | collect_reader_facts(o, made_from, o.qa.text_encoder)
            save_trained(o.out, model, layout, card, data.questions, o.start)
    print(
        f"{o.out}: text QA{describe_run(o.out)}; next: `speechssl evaluate qa {o.corpus} OUT "
        f"--systems text --reader {o.out} --split {o.qa.evaluation.eval_split}`"
    )


def make_text_examples(data: Corpus, codec: TextCodec) -> tuple[list[Example], dict[str, str]]:
    """Make an example of every question, from its text and that of its passage. Returns the
    examples, and by id the reason why a question has none."""
    examples: list[Example] = []
    left_out: dict[str, str] = {}
    for question in data.answerable:
        passage = data.passages[question.passage]
        words, span = locate_answer_words(passage, question)
        if span is None:
            left_out[question.id] = (
                f"no word of passage {passage.id} lies within the times, or "
                "at the offset, of its answer"
            )
            continue
        question_words = [word for word, _ in split_pieces(question.written, question.language)]
        question_ids, _ = codec.encode(question_words)
        ids, word_of_token = codec.encode(words)
        first_word, last_word = span
        in_answer = (word_of_token >= first_word) & (word_of_token <= last_word)
        tokens = np.flatnonzero(in_answer)
        if len(tokens):
            examples.append(Example(question_ids, ids, int(tokens[0]), int(tokens[-1])))
        else:
            left_out[question.id] = "the tokeniser leaves nothing of its question or answer"
    return examples, left_out


def locate_answer_words(
    passage: Passage, question: Question
) -> tuple[list[str], tuple[int, int] | None]:
    """Return the words of a passage, and the numbers of the first and last word of the answer (None
    where it has none). The answer's words are those within its times where both have times, else
    those at its offset in the text."""
    times = find_answer_times(question)
    if passage.words and times is not None:
        words = [w.text for w in passage.words]
        middles = [(w.start + w.end) / 2 for w in passage.words]
        start, end = times
        in_answer = [i for i, middle in enumerate(middles) if start <= middle < end]
        return words, (in_answer[0], in_answer[-1]) if in_answer else None
    words_with_offsets = split_pieces(passage.written, passage.language)
    words = [word for word, _ in words_with_offsets]
    places = [(offset, offset + len(word)) for word, offset in words_with_offsets]
    for answer in question.answers:
        if answer.char_start is not None:
            stop = answer.char_start + len(answer.text)
            return words, find_touched_words(places, answer.char_start, stop)
    return words, None


def make_untrained_model(
    data: Corpus, options: QaOptions
) -> tuple[SpanModel, PreTrainedTokenizerBase]:
    """Make a model of the text encoder that the options name and a head that is initialised by
    their seed; return it with its tokeniser."""
    encoder, tokenizer = load_text_encoder(options.text_encoder)
    if options.characters:  # every character of the corpus becomes a token of its own
        texts = [p.written for p in data.passages.values()]
        texts += [q.written for q in data.questions]
        encoder, table, tokenizer = embed_characters(
            encoder, tokenizer, texts, options.training.seed
        )
    else:
        rows = encoder.get_input_embeddings().weight.detach()
        table = nn.Embedding.from_pretrained(rows.clone(), freeze=options.trained != "all")
    torch.manual_seed(options.training.seed)
    units = make_subword_units(
        tokenizer, options.subwords, table.num_embeddings, table.embedding_dim
    )
    return SpanModel(encoder, table, units), tokenizer


def load_start_model(
    start: Path, options: QaOptions
) -> tuple[SpanModel, PreTrainedTokenizerBase, QaOptions]:
    """Load text QA to train it further; return it with its tokeniser and the options, in which its
    text encoder and vocabulary are entered. Raises InputError for a reader of another kind."""
    model, _, card = load_reader(start)
    if card.get("what") != "text QA":
        raise InputError(
            f"{start} is a {card.get('what')}, not text QA; give --start a folder of "
            "`speechssl train text-qa`"
        )
    options = replace(
        options,
        text_encoder=card["text_encoder"],
        subwords=card.get("subwords", "none"),
        characters=card.get("characters", False),
    )
    model.train().requires_grad_(True)
    model.embedding.requires_grad_(options.trained == "all" or options.characters)
    torch.manual_seed(options.training.seed)  # for dropout
    return model, load_tokenizer(start), options


def make_word_evaluation(
    o: TrainTextQa, model: SpanModel, layout: Layout, codec: TextCodec
) -> Evaluation | None:
    """Make the evaluation by F1 of the system `text` on held-out questions; None without
    --eval-every. Raises InputError where no question has a text."""
    data = load_held_out(o.corpus, o.qa.evaluation)
    if data is None:
        return None
    written_questions = []
    for q in data.answerable:
        has_words = any(answer.text.strip() for answer in q.answers)
        if has_words and q.text.strip() and data.passages[q.passage].text.strip():
            written_questions.append(q)
    data = select_questions(data, written_questions, o.qa.evaluation, "a text")
    words = {r.id: read_given_words("text", r) for r in data.records}
    items = {q.id: (words[q.id], words[q.passage]) for q in data.questions}

    def score() -> float:
        reader = TrainedReader(codec, Reader(model, layout))
        answers = answer_in_batches(make_text_system(TextQa(reader), "text").answer_all, items)
        scores = []
        for q in data.questions:
            references = [a.text for a in q.answers]
            scores.append(token_f1(answers[q.id].text, references, q.language))
        return sum(scores) / len(scores)

    return Evaluation(o.qa.evaluation, "f1", len(items), score)
