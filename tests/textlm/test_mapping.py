"""The five assignments of DUAL: which rows of a text encoder's table become units."""

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from speechssl.errors import InputError
from speechssl.textlm import ASSIGNMENTS, assign_tokens, plain_words, special_ids, symbol_encoder

SYMBOLS = 20
KEPT = ("most-frequent", "least-frequent", "random")


# ---- which tokens


def test_plain_words_are_whole_words_in_the_order_of_the_vocabulary(tokenizer):
    words = tokenizer.convert_ids_to_tokens(plain_words(tokenizer))
    assert words[:4] == ["the", "of", "and", "to"] and words[-1] == "market"
    assert all(word.isalpha() and len(word) > 1 for word in words)
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("mark", ["Ġ", "▁"])
def test_word_marks_of_other_tokenisers_are_known(mark):
    from tokenizers import Tokenizer, models

    listed = ["<s>", "</s>", "<unk>", f"{mark}the", f"{mark}a", "ing", f"{mark}x9", "##s", f"{mark}naïve", "<mask>", f"{mark}语言"]
    core = Tokenizer(models.WordLevel({t: i for i, t in enumerate(listed)}, unk_token="<unk>"))
    made = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    assert [listed[i] for i in plain_words(made)] == [f"{mark}the", "ing", f"{mark}naïve", f"{mark}语言"]


@pytest.mark.parametrize("seed", [0, 1])
def test_assignments_take_the_words_they_are_named_for(tokenizer, seed):
    words = plain_words(tokenizer)
    most, least, random = (assign_tokens(tokenizer, SYMBOLS, assignment, seed) for assignment in KEPT)
    assert set(most) == set(words[:SYMBOLS]) and set(least) == set(words[-SYMBOLS:])
    assert set(random) <= set(words) and len(set(random)) == SYMBOLS
    assert set(random) not in (set(most), set(least))
    assert most != words[:SYMBOLS]  # which of the words a unit gets is drawn


@pytest.mark.parametrize("assignment", KEPT)
def test_the_seed_decides_the_draw(tokenizer, assignment):
    first, again, other = (assign_tokens(tokenizer, SYMBOLS, assignment, seed) for seed in (3, 3, 4))
    assert first == again != other


def test_as_many_symbols_as_words_are_enough_and_one_more_is_not(tokenizer):
    words = plain_words(tokenizer)
    for assignment in KEPT:
        assert sorted(assign_tokens(tokenizer, len(words), assignment)) == words
        with pytest.raises(InputError, match=f"has {len(words)} words, too few for {len(words) + 1} units; use a smaller"):
            assign_tokens(tokenizer, len(words) + 1, assignment)


def vocabulary(*tokens):
    from tokenizers import Tokenizer, models

    core = Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>")


def test_released_takes_the_ids_from_5_in_order():
    longformer = vocabulary("<s>", "<pad>", "</s>", "<unk>", ".", "Ġthe", ",", "Ġto", "s", "Ġ-")  # ids 0 to 9 of its vocabulary
    assert [assign_tokens(longformer, 5, "released", seed) for seed in (0, 1)] == [[5, 6, 7, 8, 9]] * 2


@pytest.mark.parametrize(
    ("fifth", "message"),
    [("[unused4]", r"5, \[unused4\]"), ("madeupword0000", "madeupword"), ("<mask>", "<mask>"), (None, "which it does not have")],
)
def test_released_is_refused_where_these_ids_are_no_text(fifth, message):
    made = vocabulary("<s>", "<pad>", "</s>", "<unk>", ".", *([fifth, "Ġthe"] if fifth else []))
    made.add_special_tokens({"mask_token": "<mask>"} if fifth == "<mask>" else {})
    with pytest.raises(InputError, match=f"ids 5 to 6, of which . are no tokens of text .*{message}.*most-frequent"):
        assign_tokens(made, 2, "released")


# ---- the table


@pytest.mark.parametrize("kind", ["bert", "electra"])  # electra's table is narrower than its layers
@pytest.mark.parametrize("assignment", KEPT)
def test_rows_are_those_of_the_text_encoder(tokenizer, text_encoder, kind, assignment):
    model = text_encoder(kind)
    source = model.get_input_embeddings().weight.detach().clone()
    encoder, table = symbol_encoder(model, tokenizer, SYMBOLS, assignment, seed=5)
    assert encoder is model and table.weight.shape == (SYMBOLS + 3, source.shape[1])
    assert torch.equal(table.weight[:SYMBOLS], source[assign_tokens(tokenizer, SYMBOLS, assignment, 5)])
    assert torch.equal(model.get_input_embeddings().weight, source)
    assert table.weight.requires_grad


@pytest.mark.parametrize("assignment", KEPT)
def test_specials_keep_their_rows(tokenizer, text_encoder, assignment):
    model = text_encoder()
    _, table = symbol_encoder(model, tokenizer, SYMBOLS, assignment)
    source = model.get_input_embeddings().weight
    for row, name in zip(special_ids(SYMBOLS), ("[CLS]", "[SEP]", "[PAD]"), strict=True):
        assert torch.equal(table.weight[row], source[tokenizer.convert_tokens_to_ids(name)])


def test_re_init_keeps_the_layers_and_draws_the_rows(tokenizer, text_encoder):
    model = text_encoder()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    encoder, table = symbol_encoder(model, tokenizer, SYMBOLS, "re-init")
    assert encoder is model
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert table.weight.std().item() == pytest.approx(0.02, rel=0.1)
    source = model.get_input_embeddings().weight
    assert torch.cdist(table.weight, source).min() > 0.01


def test_scratch_draws_everything(tokenizer, text_encoder):
    model = text_encoder()
    encoder, table = symbol_encoder(model, tokenizer, SYMBOLS, "scratch", seed=7)
    assert encoder is not model and encoder.config.to_dict() == model.config.to_dict()
    matrices = [n for n, p in model.named_parameters() if p.ndim == 2]
    state = model.state_dict()
    assert not any(torch.equal(encoder.state_dict()[n], state[n]) for n in matrices)
    assert table.weight.std().item() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize("assignment", [name for name in ASSIGNMENTS if name != "released"])
def test_the_seed_decides_encoder_and_table(tokenizer, text_encoder, assignment):
    made = [symbol_encoder(text_encoder(), tokenizer, SYMBOLS, assignment, seed) for seed in (1, 1, 2)]
    (first, table), (again, same), (_, other) = made
    assert torch.equal(table.weight, same.weight) and not torch.equal(table.weight, other.weight)
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


# ---- refusals


def test_an_unknown_assignment_names_the_known(tokenizer, text_encoder):
    with pytest.raises(InputError, match="no assignment 'best'; choose one of most-frequent, released, least-frequent, random"):
        symbol_encoder(text_encoder(), tokenizer, SYMBOLS, "best")


@pytest.mark.parametrize("assignment", KEPT)
def test_too_few_words_are_refused(tokenizer, text_encoder, assignment):
    with pytest.raises(InputError, match="too few for 500 units"):
        symbol_encoder(text_encoder(), tokenizer, 500, assignment)


@pytest.mark.parametrize("assignment", ["re-init", "scratch"])
def test_drawn_rows_need_no_words(tokenizer, text_encoder, assignment):
    _, table = symbol_encoder(text_encoder(), tokenizer, 500, assignment)
    assert table.weight.shape == (503, 32) and np.isfinite(table.weight.detach().numpy()).all()


def other_tokenizer(**specials):
    from tokenizers import Tokenizer, models

    listed = ["<s>", "</s>", "<unk>", "<pad>", *(f"w{c}" for c in "abcdefghij")]
    core = Tokenizer(models.WordLevel({t: i for i, t in enumerate(listed)}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", **specials)


def test_sentence_marks_stand_in_for_cls_and_sep(text_encoder):
    model = text_encoder()
    _, table = symbol_encoder(model, other_tokenizer(bos_token="<s>", eos_token="</s>"), 5, "random")
    source = model.get_input_embeddings().weight
    assert torch.equal(table.weight[5:], source[[0, 1, 1]])  # [PAD] is never looked at


def test_a_tokeniser_without_marks_is_refused(text_encoder):
    with pytest.raises(InputError, match="choose an encoder that has"):
        symbol_encoder(text_encoder(), other_tokenizer(), 5, "random")
