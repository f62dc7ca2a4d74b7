"""QbE: the search as a task, subsequence DTW, and term-weighted values."""

import sys
import types
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from speechssl.data.superb import Utterance, UtteranceSet
from speechssl.superb.tasks import spoken_terms
from speechssl.superb.tasks.spoken_terms import (
    BETA,
    SpokenTerms,
    max_term_value,
    side_by_side,
    subsequence_costs,
    term_values,
    values_at,
)

from ...files import refused


def utterance(name, **fields):
    return Utterance(name, f"{name}.flac", 1.0, **fields)


def made(tmp_path, queries=6, documents=14, seed=0, width=4):
    """A task, and states of which layer 1 alone knows the words: a query lies in document i and i +
    1, in noise."""
    rng = np.random.default_rng(seed)
    words = [rng.standard_normal((int(rng.integers(5, 12)), width)) for _ in range(queries)]
    states, split = {}, {"documents": [], "dev": [], "test": []}

    def add(name, known):
        noise = rng.standard_normal((2, *known.shape))
        layers = np.stack([noise[0], known, noise[1]], 1)
        states[name] = torch.tensor(layers, dtype=torch.float32)

    for i in range(documents):
        held = [words[j] for j in range(queries) if i in (j, j + 1)]
        begin = rng.standard_normal((int(rng.integers(3, 20)), width))
        add(f"d{i}", np.concatenate([begin, *held, rng.standard_normal((4, width))]))
        split["documents"].append(utterance(f"d{i}"))
    for name in ("dev", "test"):
        for j, word in enumerate(words):
            add(f"{name}{j}", word + 0.3 * rng.standard_normal(word.shape))
            split[name].append(utterance(f"{name}{j}", matches=(f"d{j}", f"d{j + 1}")))
    splits = {name: tuple(found) for name, found in split.items()}
    return SpokenTerms(UtteranceSet(tmp_path, "qbe", splits, "hash")), states


def test_the_layer_that_knows_is_chosen_and_evaluated(tmp_path):
    task, states = made(tmp_path)
    layer, found = task.choose_layer(states.__getitem__, 3)
    assert layer == 1
    assert len(found) == 3
    assert found[1] == max(found) > 60
    best, actual = task.evaluate(states.__getitem__, "test", layer, resamples=200).measures
    assert (best.metric, actual.metric) == ("mtwv", "atwv")
    assert best.low <= best.value <= best.high
    assert best.value >= actual.value
    assert best.n == actual.n == 6
    assert best.value > 60
    of_dev = [task.evaluate(states.__getitem__, "dev", layer, 1) for layer in range(3)]
    assert [one.measures[0].value for one in of_dev] == pytest.approx(found)


def test_it_is_s3prls(s3prl, tmp_path, monkeypatch):
    """Its expert writes scores with four digits into an XML file; its query of under five frames
    and its order of things too."""
    pytest.importorskip("dtw", reason="dtw-python is not installed")
    expert = s3prls_expert(monkeypatch)
    task, states = made(tmp_path, queries=5, documents=9, seed=3)
    states["dev2"] = states["dev2"][:4]
    queries, documents = ([u.id for u in task.data.splits[name]] for name in ("dev", "documents"))
    ours = task.scores(states.__getitem__, "dev", [0, 1, 2])
    for layer in range(3):
        features = {name: some[:, layer] for name, some in states.items()}
        found = theirs_of(expert, tmp_path, queries, documents, features)
        theirs = np.array([[found[q][d] for d in documents] for q in queries])
        assert ours[layer] == pytest.approx(theirs[..., 0], abs=1e-4)
        assert ((ours[layer] > spoken_terms.DECISION) == theirs[..., 1]).all()
    assert not ours[:, 2].any()


def s3prls_expert(monkeypatch):
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
    """query -> document -> (score, whether it is decided to be there)."""
    rules = {"dist_method": "cosine_exp", "minmax_norm": True}
    rules |= {"step_pattern": "asymmetric", "subsequence": True}
    config = {"max_workers": 1, "feature_normalization": True, "silence_frame": None}
    expert = module.DownstreamExpert(4, config | {"datarc": {}, "dtwrc": rules}, folder)
    expert.test_dataset = types.SimpleNamespace(n_queries=len(queries), n_docs=len(documents))
    records, names = defaultdict(list), [*queries, *documents]
    expert("dev", [features[name] for name in names], names, records)
    expert.log_records("dev", records)
    found = defaultdict(dict)
    for terms in ElementTree.parse(folder / "benchmark.stdlist.xml").getroot():
        for t in terms:
            decided = float(t.get("score")), t.get("decision") == "YES"
            found[terms.get("termid")][t.get("file")] = decided
    return found


def test_unreadable_recordings_are_missed_and_never_left_out(tmp_path):
    task, states = made(tmp_path)
    before = task.evaluate(states.__getitem__, "test", 1, 1).measures[0]
    del states["test0"], states["d13"]
    states["d12"] = states["d12"][:0]  # no frame
    scores = task.scores(states.__getitem__, "test", [1])[0]
    assert (scores[0] == -np.inf).all()
    assert (scores[:, [12, 13]] == -np.inf).all()
    assert scores[1:, :12].mean(1) == pytest.approx(0, abs=1e-9)
    assert scores[1:, :12].std(1) == pytest.approx(1)
    after = task.evaluate(states.__getitem__, "test", 1, 1).measures[0]
    assert after.n == before.n
    assert after.value < before.value


def test_a_query_that_matches_an_unknown_document_is_named(tmp_path):
    task, _ = made(tmp_path)
    splits = task.data.splits
    wrong = utterance("dev9", matches=("d0", "d99"))
    data = UtteranceSet(tmp_path, "qbe", splits | {"dev": (*splits["dev"], wrong)}, "hash")
    refused(r"dev\.jsonl, query dev9, matches 'd99'", SpokenTerms, data)


def frames(count, seed, width=5):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((count, width))).float()


def by_dtw_python(query, document):
    """s3prl's `match`, in double precision."""
    dtw = pytest.importorskip("dtw", reason="dtw-python is not installed").dtw
    found = np.exp(cdist(query, document, "cosine")) - 1
    low, high = found.min(1, keepdims=True), found.max(1, keepdims=True)
    found = (found - low) / np.clip(high - low, 1e-9, np.inf)
    opened = {"step_pattern": "asymmetric", "open_begin": True, "open_end": True}
    return dtw(found, **opened).normalizedDistance


@pytest.mark.slow
@given(
    st.integers(1, 30), st.lists(st.integers(2, 40), min_size=1, max_size=6), st.integers(0, 999)
)
def test_it_is_dtw_pythons(length, lengths, seed):
    query = frames(length, seed)
    documents = [frames(n, seed + 1 + i) for i, n in enumerate(lengths)]
    ours = subsequence_costs(query, *side_by_side(documents))
    alone = torch.cat([subsequence_costs(query, *side_by_side([d])) for d in documents])
    assert torch.allclose(ours, alone, atol=1e-5)  # no neighbour and no padding matters
    assert ours.numpy() == pytest.approx([by_dtw_python(query, d) for d in documents], abs=1e-5)


def brute_force(scores, truth):
    """MTWV: at every score there is, and above all of them."""
    best = 0.0
    for threshold in scores[np.isfinite(scores)]:
        detected = scores >= threshold
        misses = (~detected & truth).sum(1) / truth.sum(1)
        alarms = (detected & ~truth).sum(1) / np.maximum((~truth).sum(1), 1)
        best = max(best, (1 - misses - BETA * alarms).mean())
    return best


def drawn(queries, documents, seed, ties=False, informed=2.0):
    rng = np.random.default_rng(seed)
    truth = rng.random((queries, documents)) < 0.2
    truth[np.arange(queries), rng.integers(0, documents, queries)] = True
    scores = rng.standard_normal(truth.shape) + informed * truth
    return np.round(scores) if ties else scores, truth


SHAPES, INFORMED = (st.integers(1, 6), st.integers(1, 25)), st.sampled_from([0.0, 2.0, 6.0])


@pytest.mark.slow
@given(*SHAPES, st.integers(0, 999), st.booleans(), INFORMED)
def test_mtwv_is_the_definition(queries, documents, seed, ties, informed):
    scores, truth = drawn(queries, documents, seed, ties, informed)
    assert max_term_value(term_values(scores, truth)) == pytest.approx(brute_force(scores, truth))


def test_values_by_hand():
    # 1 / 0.0741289 - 1: the effective prior that MediaEval's scorer is given
    assert BETA == pytest.approx(12.49)
    scores = np.array([[3.0, 0.0, 0.0], [-np.inf] * 3])
    truth = np.array([[True, False, False], [True, True, False]])
    assert max_term_value(term_values(scores, truth)) == 0.5
    # a score of minus infinity is missed even at the lowest threshold
    assert values_at(scores, truth, -1e9)[1] == 0
