"""QbE: s3prl's own expert on the same features, the layer that knows best, what cannot be heard, and bounded memory."""

import sys
import types
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from speechssl.data.utterances import Utterance, UtteranceSet
from speechssl.errors import InputError
from speechssl.superb.tasks import spoken_terms
from speechssl.superb.tasks.spoken_terms import SpokenTerms


def utterance(name, **fields):
    return Utterance(name, f"{name}.flac", 1.0, **fields)


def made(tmp_path, queries=6, documents=14, seed=0, width=4):
    """A task, and states of which layer 1 alone knows the words: a query lies in document i and i + 1, in noise."""
    rng = np.random.default_rng(seed)
    words = [rng.standard_normal((int(rng.integers(5, 12)), width)) for _ in range(queries)]
    states, split = {}, {"documents": [], "dev": [], "test": []}
    for i in range(documents):
        held = [words[j] for j in range(queries) if i in (j, j + 1)]
        parts = [rng.standard_normal((int(rng.integers(3, 20)), width)), *held, rng.standard_normal((4, width))]
        known = np.concatenate(parts)
        noise = rng.standard_normal((2, *known.shape))
        states[f"d{i}"] = torch.tensor(np.stack([noise[0], known, noise[1]], 1), dtype=torch.float32)
        split["documents"].append(utterance(f"d{i}"))
    for name in ("dev", "test"):
        for j, word in enumerate(words):
            known = word + 0.3 * rng.standard_normal(word.shape)
            noise = rng.standard_normal((2, *word.shape))
            states[f"{name}{j}"] = torch.tensor(np.stack([noise[0], known, noise[1]], 1), dtype=torch.float32)
            split[name].append(utterance(f"{name}{j}", matches=(f"d{j}", f"d{j + 1}")))
    data = UtteranceSet(tmp_path, "qbe", {name: tuple(found) for name, found in split.items()}, "hash")
    return SpokenTerms(data), states


def test_the_layer_that_knows_is_chosen_and_judged(tmp_path):
    task, states = made(tmp_path)
    layer, found = task.choose_layer(states.__getitem__, 3)
    assert layer == 1 and len(found) == 3 and found[1] > 60 and found[1] == max(found)
    judged = task.judge(states.__getitem__, "test", layer, resamples=200)
    assert [m.metric for m in judged.measures] == ["mtwv", "atwv"]
    best, actual = judged.measures
    assert best.low <= best.value <= best.high and best.value >= actual.value and best.n == actual.n == 6
    assert best.value > 60 and judged.detail["layer"] == 1 and 0 < judged.detail["threshold"] < 6
    still = task.judge(states.__getitem__, "test", layer, resamples=0).measures[0]
    assert still.low == still.value == still.high == best.value


def test_dev_of_one_layer_is_what_choosing_found(tmp_path):
    task, states = made(tmp_path)
    _, found = task.choose_layer(states.__getitem__, 3)
    alone = [task.judge(states.__getitem__, "dev", layer, 0).measures[0].value for layer in range(3)]
    assert alone == pytest.approx(found)


def test_it_is_s3prls(tmp_path, monkeypatch):
    """Its expert writes scores with four digits into an XML file; its query of under five frames and its order of things too."""
    pytest.importorskip("dtw", reason="dtw-python is not installed")
    expert = s3prls_expert(monkeypatch)
    task, states = made(tmp_path, queries=5, documents=9, seed=3)
    states["dev2"] = states["dev2"][:4]
    queries, documents = ([u.id for u in task.data.splits[name]] for name in ("dev", "documents"))
    ours = task.scores(states.__getitem__, "dev", [0, 1, 2])
    for layer in range(3):
        theirs = theirs_of(expert, tmp_path, queries, documents, lambda name, at=layer: states[name][:, at])
        assert ours[layer] == pytest.approx(np.array([[theirs[q][d][0] for d in documents] for q in queries]), abs=1e-4)
        said = np.array([[theirs[q][d][1] for d in documents] for q in queries])
        assert ((ours[layer] > task.decision) == said).all()
    assert not ours[:, 2].any()


def s3prls_expert(monkeypatch):
    pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
    from speechssl.encoders.s3prl import import_hub

    import_hub()
    etree = types.ModuleType("lxml.etree")
    etree.Element, etree.SubElement = ElementTree.Element, ElementTree.SubElement

    class Tree(ElementTree.ElementTree):
        def write(self, path, encoding, pretty_print):
            super().write(path, encoding)

    etree.ElementTree = Tree
    lxml = types.ModuleType("lxml")
    lxml.etree = etree
    for name, module in (("lxml", lxml), ("lxml.etree", etree)):
        monkeypatch.setitem(sys.modules, name, module)
    from s3prl.downstream.quesst14_dtw import expert

    monkeypatch.setattr(expert, "ProcessPoolExecutor", ThreadPoolExecutor)
    return expert


def theirs_of(module, folder, queries, documents, features):
    """query -> document -> (score, whether it is said to be there)."""
    rules = {"dist_method": "cosine_exp", "minmax_norm": True, "step_pattern": "asymmetric", "subsequence": True}
    config = {"max_workers": 1, "feature_normalization": True, "silence_frame": None, "datarc": {}, "dtwrc": rules}
    expert = module.DownstreamExpert(4, config, folder)
    expert.test_dataset = types.SimpleNamespace(n_queries=len(queries), n_docs=len(documents))
    records, names = defaultdict(list), [*queries, *documents]
    expert("dev", [features(name) for name in names], names, records)
    expert.log_records("dev", records)
    tree = ElementTree.parse(folder / "benchmark.stdlist.xml").getroot()
    return {
        terms.get("termid"): {t.get("file"): (float(t.get("score")), t.get("decision") == "YES") for t in terms} for terms in tree
    }


def test_little_memory_changes_nothing(tmp_path, monkeypatch):
    task, states = made(tmp_path)
    whole = task.scores(states.__getitem__, "test", range(3))
    monkeypatch.setattr(spoken_terms, "BLOCK", 40 * 12)
    monkeypatch.setattr(spoken_terms, "PAIRS", 100)
    assert np.allclose(task.scores(states.__getitem__, "test", range(3), workers=1), whole, atol=1e-5)


def test_bfloat16_states_are_near(tmp_path):
    task, states = made(tmp_path)
    whole, halved = (task.scores(get, "test", [1]) for get in (states.__getitem__, lambda name: states[name].bfloat16()))
    assert np.abs(whole - halved).max() < 0.1


def test_what_cannot_be_heard_is_missed_and_never_left_out(tmp_path):
    task, states = made(tmp_path)
    before = task.judge(states.__getitem__, "test", 1, 0).measures[0]
    del states["test0"], states["d13"]
    states["d12"] = states["d12"][:0]  # no frame
    scores = task.scores(states.__getitem__, "test", [1])[0]
    assert (scores[0] == -np.inf).all() and (scores[:, [12, 13]] == -np.inf).all()
    assert scores[1:, :12].mean(1) == pytest.approx(0, abs=1e-9) and scores[1:, :12].std(1) == pytest.approx(1)
    after = task.judge(states.__getitem__, "test", 1, 0).measures[0]
    assert after.n == before.n and after.value < before.value
    with pytest.raises(InputError, match=r"documents\.jsonl could be heard"):
        task.judge({name: s for name, s in states.items() if "d" not in name[:1] or "dev" in name}.__getitem__, "dev", 1, 0)


def test_queries_without_matches_count_in_nothing_but_the_statistics(tmp_path):
    task, states = made(tmp_path)
    splits = dict(task.data.splits)
    states["more"] = 50 + states["test0"]
    splits["test"] = (*splits["test"], utterance("more"))
    more = SpokenTerms(UtteranceSet(tmp_path, "qbe", splits, "hash"))
    assert more.judge(states.__getitem__, "test", 1, 0).measures[0].n == 6
    both = (t.scores(states.__getitem__, "test", [1]) for t in (task, more))
    first, second = both
    assert first.shape == second.shape and not np.allclose(first, second, atol=1e-3)


def test_bad_sets(tmp_path):
    task, _ = made(tmp_path)
    splits = task.data.splits
    for wrong, message in (
        (utterance("dev9", matches=("d0", "d99")), r"dev\.jsonl, query dev9, matches 'd99'"),
        (None, r"dev\.jsonl has no query with matches"),
    ):
        dev = (*splits["dev"], wrong) if wrong else (utterance("dev0"),)
        with pytest.raises(InputError, match=message):
            SpokenTerms(UtteranceSet(tmp_path, "qbe", splits | {"dev": dev}, "hash"))
