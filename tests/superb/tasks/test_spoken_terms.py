"""Tests of query by example: the task, whose scores are compared with s3prl's; subsequence DTW,
compared with dtw-python; and term-weighted values."""

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
    compute_mtwv,
    compute_subsequence_costs,
    compute_term_values,
    stack_documents,
)

from ...files import refused


def make_utterance(name, **fields):
    return Utterance(name, f"{name}.flac", 1.0, **fields)


def make_task(tmp_path, queries=6, documents=14, seed=0):
    """Make a task of invented words, and the hidden states of its recordings by id: three layers of
    width 4, of which layers 0 and 2 are noise. The word of query i is in the documents i and
    i + 1."""
    rng = np.random.default_rng(seed)
    width = 4
    words = [rng.standard_normal((int(rng.integers(5, 12)), width)) for _ in range(queries)]
    states, utterances = {}, {"documents": [], "dev": [], "test": []}

    def add_states(name, layer_1):
        noise = rng.standard_normal((2, *layer_1.shape))
        layers = np.stack([noise[0], layer_1, noise[1]], 1)
        states[name] = torch.tensor(layers, dtype=torch.float32)

    for i in range(documents):
        words_of_document = [words[j] for j in range(queries) if i in (j, j + 1)]
        beginning = rng.standard_normal((int(rng.integers(3, 20)), width))
        end = rng.standard_normal((4, width))
        add_states(f"d{i}", np.concatenate([beginning, *words_of_document, end]))
        utterances["documents"].append(make_utterance(f"d{i}"))
    for split in ("dev", "test"):
        for j, word in enumerate(words):
            add_states(f"{split}{j}", word + 0.3 * rng.standard_normal(word.shape))
            query = make_utterance(f"{split}{j}", matches=(f"d{j}", f"d{j + 1}"))
            utterances[split].append(query)
    splits = {split: tuple(listed) for split, listed in utterances.items()}
    return SpokenTerms(UtteranceSet(tmp_path, "qbe", splits, "hash")), states


def test_the_layer_with_the_words_is_chosen_on_dev(tmp_path):
    task, states = make_task(tmp_path)
    layer, mtwvs = task.choose_layer(states.__getitem__, layers=3)
    assert layer == 1
    assert mtwvs[1] == max(mtwvs)
    for number, mtwv in enumerate(mtwvs):
        evaluation = task.evaluate(states.__getitem__, "dev", number, resamples=1)
        assert evaluation.measures["mtwv"].value == pytest.approx(mtwv)
    measures = task.evaluate(states.__getitem__, "test", layer, resamples=200).measures
    mtwv, atwv = measures["mtwv"], measures["atwv"]
    assert mtwv.n == 6
    assert mtwv.low <= mtwv.value <= mtwv.high
    assert mtwv.value > 60
    assert mtwv.value >= atwv.value


def test_scores_and_decisions_are_s3prls(s3prl, tmp_path, monkeypatch):
    """s3prl's expert writes scores with four digits."""
    pytest.importorskip("dtw", reason="dtw-python is not installed")
    expert = import_expert(monkeypatch)
    task, states = make_task(tmp_path, queries=5, documents=9, seed=3)
    states["dev2"] = states["dev2"][:4]  # too short a query, which scores 0
    queries = [u.id for u in task.data.splits["dev"]]
    documents = [u.id for u in task.data.splits["documents"]]
    scores = task.score_pairs(states.__getitem__, "dev", [0, 1, 2])
    assert not scores[:, 2].any()
    for layer in range(3):
        features = {name: states_of_name[:, layer] for name, states_of_name in states.items()}
        results = run_expert(expert, tmp_path, queries, documents, features)
        expected = np.array([[results[q][d][0] for d in documents] for q in queries])
        decisions = np.array([[results[q][d][1] for d in documents] for q in queries])
        assert scores[layer] == pytest.approx(expected, abs=1e-4)
        assert ((scores[layer] > spoken_terms.DECISION) == decisions).all()


def import_expert(monkeypatch):
    """Import s3prl's expert, with a stand-in for lxml, and threads in the place of processes."""
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


def run_expert(module, folder, queries, documents, features):
    """Return what the expert writes to an XML file: query -> document -> (score, whether it decides
    that the document contains the query)."""
    rules = {"dist_method": "cosine_exp", "minmax_norm": True}
    rules |= {"step_pattern": "asymmetric", "subsequence": True}
    config = {"max_workers": 1, "feature_normalization": True, "silence_frame": None}
    expert = module.DownstreamExpert(4, config | {"datarc": {}, "dtwrc": rules}, folder)
    expert.test_dataset = types.SimpleNamespace(n_queries=len(queries), n_docs=len(documents))
    records, names = defaultdict(list), [*queries, *documents]
    expert("dev", [features[name] for name in names], names, records)
    expert.log_records("dev", records)
    results = defaultdict(dict)
    for terms in ElementTree.parse(folder / "benchmark.stdlist.xml").getroot():
        for term in terms:
            result = float(term.get("score")), term.get("decision") == "YES"
            results[terms.get("termid")][term.get("file")] = result
    return results


def test_unreadable_recordings_are_missed_and_never_left_out(tmp_path):
    task, states = make_task(tmp_path)
    before = task.evaluate(states.__getitem__, "test", 1, 1).measures["mtwv"]
    del states["test0"], states["d13"]
    states["d12"] = states["d12"][:0]  # no frame
    scores = task.score_pairs(states.__getitem__, "test", [1])[0]
    assert (scores[0] == -np.inf).all()
    assert (scores[:, [12, 13]] == -np.inf).all()
    assert scores[1:, :12].mean(1) == pytest.approx(0, abs=1e-9)
    assert scores[1:, :12].std(1) == pytest.approx(1)
    after = task.evaluate(states.__getitem__, "test", 1, 1).measures["mtwv"]
    assert after.n == before.n
    assert after.value < before.value
    # the query that could not be read has the value 0
    assert compute_mtwv(compute_term_values(scores[:1], task.mark_matches("test")[:1])) == 0


def test_a_query_that_matches_an_unknown_document_is_refused(tmp_path):
    task, _ = make_task(tmp_path)
    splits = task.data.splits
    query = make_utterance("dev9", matches=("d0", "d99"))
    data = UtteranceSet(tmp_path, "qbe", splits | {"dev": (*splits["dev"], query)}, "hash")
    refused(r"dev\.jsonl, query dev9, matches 'd99'", SpokenTerms, data)


# ---- subsequence DTW


def random_frames(count, seed):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((count, 5))).float()


def cost_by_dtw_python(query, document):
    """Return the cost as s3prl's `match` computes it, in double precision."""
    dtw = pytest.importorskip("dtw", reason="dtw-python is not installed").dtw
    distances = np.exp(cdist(query, document, "cosine")) - 1
    low, high = distances.min(1, keepdims=True), distances.max(1, keepdims=True)
    distances = (distances - low) / np.clip(high - low, 1e-9, np.inf)
    path = dtw(distances, step_pattern="asymmetric", open_begin=True, open_end=True)
    return path.normalizedDistance


@pytest.mark.slow
@given(
    st.integers(1, 30), st.lists(st.integers(2, 40), min_size=1, max_size=6), st.integers(0, 999)
)
def test_costs_are_dtw_pythons_and_do_not_depend_on_other_documents(length, lengths, seed):
    query = random_frames(length, seed)
    documents = [random_frames(n, seed + 1 + i) for i, n in enumerate(lengths)]
    costs = compute_subsequence_costs(query, *stack_documents(documents))
    alone = torch.cat([compute_subsequence_costs(query, *stack_documents([d])) for d in documents])
    assert torch.allclose(costs, alone, atol=1e-5)
    expected = [cost_by_dtw_python(query, document) for document in documents]
    assert costs.numpy() == pytest.approx(expected, abs=1e-5)


# ---- term-weighted values


def mtwv_by_brute_force(scores, truth):
    """Compute MTWV with every score as the threshold; 0 is the value above all scores."""
    best = 0.0
    for threshold in scores[np.isfinite(scores)]:
        detected = scores >= threshold
        misses = (~detected & truth).sum(1) / truth.sum(1)
        false_alarms = (detected & ~truth).sum(1) / np.maximum((~truth).sum(1), 1)
        best = max(best, (1 - misses - BETA * false_alarms).mean())
    return best


@pytest.mark.slow
@given(
    queries=st.integers(1, 6),
    documents=st.integers(1, 25),
    seed=st.integers(0, 999),
    with_ties=st.booleans(),
    distance=st.sampled_from([0.0, 2.0, 6.0]),
)
def test_mtwv_is_that_of_brute_force(queries, documents, seed, with_ties, distance):
    """distance: by which scores of true pairs are higher on average."""
    rng = np.random.default_rng(seed)
    truth = rng.random((queries, documents)) < 0.2
    truth[np.arange(queries), rng.integers(0, documents, queries)] = True  # one of every query
    scores = rng.standard_normal(truth.shape) + distance * truth
    if with_ties:
        scores = np.round(scores)
    mtwv = compute_mtwv(compute_term_values(scores, truth))
    assert mtwv == pytest.approx(mtwv_by_brute_force(scores, truth))


def test_beta_is_that_of_mediaevals_scorer():
    effective_prior = 0.0741289  # which its command line gives
    assert pytest.approx(1 / effective_prior - 1, abs=5e-4) == BETA
