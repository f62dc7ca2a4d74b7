"""MiniSQA's same-text distance: phones are the topline, MFCCs the floor."""

import pytest

from speechssl.units.fit import fit_units
from speechssl.units.options import Fit

from .shared import script


@pytest.mark.slow
def test_phones_are_alike_for_two_voices_and_mfcc_units_are_not(tmp_path):
    pytest.importorskip("espeakng_loader")
    from speechssl.synth.minisqa import prepare_minisqa
    from speechssl.synth.options import MiniSqa

    root, book = tmp_path / "corpus", tmp_path / "book.safetensors"
    prepare_minisqa(MiniSqa(out=root, passages=1, dev_passages=2, test_passages=0, workers=1))
    fit_units(Fit(source=root, encoder="mfcc", out=book, clusters=20))
    pairs = script("minisqa/unit_pairs.py")
    options = {"split": "dev", "pairs": 4, "conditions": ()}
    phones = pairs.measure(pairs.Pairs(source=root, encoder="phones", codebook=book, **options))
    assert phones["same_text_distance"] < 0.1 and phones["same_text_auc"] == 1
    floor = pairs.measure(pairs.Pairs(source=root, encoder="mfcc", codebook=book, **options))
    assert floor["K"] == 20 and floor["same_text_distance"] > 0.4
    assert 0 < floor["pnmi"] < 1 and floor["units_a_second"] > phones["units_a_second"]
