"""By the distance between the units of one text spoken by two voices, phones are the topline of
MiniSQA's units and clusters of MFCCs the floor."""

import pytest

from speechssl.units.fit import fit_units
from speechssl.units.options import Fit

from .shared import script


@pytest.mark.slow
def test_phones_are_alike_for_two_voices_and_mfcc_units_are_not(tmp_path):
    pytest.importorskip("espeakng_loader")
    from speechssl.synth.minisqa import prepare_minisqa
    from speechssl.synth.options import MiniSqa

    corpus = tmp_path / "corpus"
    codebook = tmp_path / "codebook.safetensors"
    prepare_minisqa(MiniSqa(out=corpus, passages=1, dev_passages=2, test_passages=0, workers=1))
    fit_units(Fit(source=corpus, encoder="mfcc", out=codebook, clusters=20))
    unit_pairs = script("minisqa/unit_pairs.py")

    def measure(encoder):
        sources = {"source": corpus, "encoder": encoder, "codebook": codebook}
        return unit_pairs.measure(unit_pairs.Pairs(**sources, split="dev", pairs=4, conditions=()))

    phones = measure("phones")
    assert phones["same_text_distance"] < 0.1
    assert phones["same_text_auc"] == 1
    mfcc = measure("mfcc")
    assert mfcc["K"] == 20
    assert mfcc["same_text_distance"] > 0.4
    assert 0 < mfcc["pnmi"] < 1
    assert mfcc["units_a_second"] > phones["units_a_second"]
