"""``structure.method = "posterior"`` and ``[posterior]``: the keys, the bytes, and what is refused by name."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.posterior.chains import Chains
from verticil.shared.numerics.posterior.parent_sets import ParentSets
from verticil.shared.study import canonical, rules
from verticil.shared.study.document import PosteriorRule, ReleaseRule, Study
from verticil.shared.study.posterior import check_posterior, drawn_categories
from verticil.shared.study.reading import read_study
from verticil.shared.study.vocabulary import KEPT_GRAPHS

TEXT = """\
schema = 1
id = "sampled"
purpose = "test"
model = "MODEL"
expires = 2099-12-31
[[party]]
name = "a"
[[party]]
name = "b"
""" + "".join(
    f'[[variable]]\nparty = "{party}"\nname = "{name}"\ncategories = ["0", "1", "2"]\n'
    for party, name in (("a", "x"), ("a", "y"), ("a", "z"), ("b", "s"), ("b", "t"))
)
RANDOMIZED = '[randomization_default]\nscheme = "symmetric"\nepsilon = 2.0\n'
RAW = '[randomization_default]\nscheme = "none"\n'
METHOD = '[structure]\nmethod = "posterior"\n'


def read(tmp_path: Path, said: str, *, randomized: str = RANDOMIZED, model: str = "central") -> Study:
    path = tmp_path / "study.toml"
    path.write_text(TEXT.replace("MODEL", model) + randomized + said, encoding="utf-8")
    return read_study(path)


def test_every_key_is_read_and_kept(tmp_path):
    study = read(
        tmp_path,
        METHOD
        + 'score = "dirichlet"\nmax_parents = 3\n[posterior]\nchains = 6\nsteps = 500\nprior = "penalty"\ngamma = 0.5\n'
        'alpha = 2\ndata_sets = 7\nstatistics = [["chi-square", "x", "t"], ["mle", "x", "0", "t", "2"], '
        '["linear", "x", "y", "t"], ["logistic", "s", "1", "x"]]\n',
    )
    assert study.posterior == PosteriorRule(
        chains=6,
        steps=500,
        prior="penalty",
        gamma=0.5,
        alpha=2.0,
        data_sets=7,
        statistics=(
            ("chi-square", "x", "t"),
            ("mle", "x", "0", "t", "2"),
            ("linear", "x", "y", "t"),
            ("logistic", "s", "1", "x"),
        ),
    )
    assert (study.structure.score, study.records_from, study.samples_graphs) == ("dirichlet", "posterior", True)
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


def test_the_defaults_are_said_by_the_method_alone(tmp_path):
    """Studies without the method have the bytes that they had; with it, and every default, nothing but the method is new."""
    study = read(tmp_path, METHOD)
    assert (study.posterior, study.structure.score) == (PosteriorRule(), "bdeu")
    assert not study.leaves_source_open
    for said in ("", METHOD):
        assert "posterior" not in json.loads(canonical.to_bytes(read(tmp_path, said)))
    assert read(tmp_path, METHOD + "[posterior]\nsteps = 20000\n") == study
    assert canonical.digest(read(tmp_path, METHOD + "[posterior]\nsteps = 20001\n")) != canonical.digest(study)
    assert read(tmp_path, METHOD + '[release]\nsample_from = "network"\n').records_from == "network"


def test_burn_in_and_thinning_are_kept_and_left_out_where_nobody_says_them(tmp_path):
    study = read(tmp_path, METHOD + "[posterior]\nburn_in = 3000\nthinning = 8\n")
    assert (study.posterior.burn_in, study.posterior.thinning) == (3000, 8)
    assert canonical.from_bytes(canonical.to_bytes(study)) == study
    usual = json.loads(canonical.to_bytes(read(tmp_path, METHOD + "[posterior]\nsteps = 500\n")))["posterior"]
    assert not {"burn_in", "thinning"} & set(usual)


def test_chains_of_a_study_keep_what_it_says():
    """By hand: of 1,000 steps 400 are left out, and every 30th of the others is kept."""
    chains = Chains(chains=2, steps=1000, discarded=400, thinning=30)
    assert (chains.burn_in, chains.every, chains.n_graphs) == (400, 30, 20)
    usual = Chains(chains=2, steps=1000)
    assert (usual.burn_in, usual.every, usual.n_graphs) == (200, 1, 800)
    assert repr(usual) == "Chains(chains=2, steps=1000, together=3)"  # checkpoints of before are known by it
    with pytest.raises(ValueError, match="expected a burn-in below the steps"):
        Chains(steps=1000, discarded=1000)
    with pytest.raises(ValueError, match="at least 1"):
        Chains(steps=1000, thinning=0)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            METHOD + "[posterior]\nburn_in = 20000\n",
            "posterior.burn_in: got 20000, expected 0 to 19999, less than the 20000",
        ),
        (METHOD + "[posterior]\nburn_in = -1\n", "posterior.burn_in: got -1"),
        (METHOD + "[posterior]\nthinning = 0\n", "posterior.thinning: got 0, expected 1 or more"),
        (METHOD + "[posterior]\nthinning = 1\n", "keep 16000 graphs of a chain, expected 20 to 4000"),
        (METHOD + "[posterior]\nburn_in = 19990\n", "keep 10 graphs of a chain, expected 20 to 4000"),
        ("[posterior]\nsteps = 500\n", "goes with structure.method 'posterior', got 'auto'"),
        ("[posterior]\n", "goes with structure.method 'posterior', got 'auto'"),
        (METHOD + "[posterior]\ndata_sets = 0\n", "posterior.data_sets: got 0, expected 1 to 100"),
        (METHOD + "[posterior]\ndata_sets = 101\n", "posterior.data_sets: got 101, expected 1 to 100"),
        (METHOD + "[posterior]\nchains = 1\n", "posterior.chains: got 1, expected 2 to 64"),
        (METHOD + "[posterior]\nsteps = 99\n", "posterior.steps: got 99, expected 100 to"),
        (METHOD + "[posterior]\nprior = 'penalty'\ngamma = nan\n", "gamma"),
        (METHOD + "[posterior]\ngamma = 2.0\n", "gamma: goes with prior = 'penalty', got 'uniform'"),
        (METHOD + "[posterior]\nalpha = 1.0\n", "alpha: goes with prior = 'penalty', got 'uniform'"),
        (
            METHOD + "max_parents = 3\n[posterior]\nprior = 'penalty'\nalpha = 11.0\n",
            "gamma, alpha: a column with 3 parents, as many as it may have, loses 177147 nats, expected at most 100000",
        ),
        (METHOD + "[posterior]\nprior = 'flat'\n", "got 'flat', expected one of uniform, penalty"),
        (METHOD + "[posterior]\ndatasets = 4\n", "posterior.datasets: unknown key"),
        (METHOD + "score = 'bic'\n", "'bic' does not go with the method 'posterior', expected bdeu or dirichlet"),
        ("[structure]\nmethod = 'hill-climb'\nscore = 'dirichlet'\n", "'dirichlet' does not go with the method"),
        (METHOD + "minimum_strength = 0.5\n", "how probable each edge is"),
        (METHOD + "required = [['x', 'y'], ['y', 'z'], ['z', 'x']]\n", "make a cycle"),
        ("[release]\nsample_from = 'posterior'\n", "got 'posterior' with the method 'auto', which finds one graph"),
        (
            METHOD + "[release]\nsynthetic_records = 20000000\n",
            "5 sets of 20000000 records with 5 variables have 500000000 cells, expected at most 268435456",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, said, message):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, said)
    assert caught.value.code == "STUDY_INVALID"
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "got '', expected one of mle, chi-square"),
        (["median", "x"], "got 'median', expected one of mle, chi-square"),
        (["mle", "x"], '2 words, expected ["mle", "VARIABLE"'),
        (["mle", "x", "0", "y"], '4 words, expected ["mle", "VARIABLE"'),
        (["mle", "x", "7"], "'7' is not a category of 'x'"),
        (["mle", "x", "0", "x", "1"], "a variable stands there twice"),
        (["mle"], "1 words, expected"),
        (["chi-square", "x"], "2 words, expected"),
        (["chi-square", "x", "q"], "'q' is not a variable of the study"),
        (["linear", "x"], "2 words, expected"),
        (["logistic", "x"], "2 words, expected"),
        (["logistic", "x", "0"], "3 words, expected"),
        (["logistic", "x", "yes", "y"], "'yes' is not a category of 'x'"),
    ],
)
def test_a_statistic_that_cannot_be_is_refused_with_its_number(tmp_path, words, message):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, f'{METHOD}[posterior]\nstatistics = [["chi-square", "x", "y"], {json.dumps(words)}]\n')
    assert caught.value.code == "STUDY_INVALID"
    assert "posterior.statistics, number 2: " in caught.value.message
    assert message in caught.value.message


def test_an_overlap_needs_the_original(tmp_path):
    """The interval that it compares with is the original records'; whoever learns must have them as they are."""
    said = METHOD + '[posterior]\nstatistics = [["overlap", "x", "0"]]\n'
    read(tmp_path, said, randomized=RAW)
    for randomized in (RANDOMIZED, RAW + "[tables]\nepsilon = 1.0\ndelta = 1e-9\n"):
        with pytest.raises(Misuse, match="'overlap' compares with the interval of the original") as caught:
            read(tmp_path, said, randomized=randomized)
        assert caught.value.code == "STUDY_UNSUPPORTED"


def test_noise_is_no_reason_to_refuse_its_scores(tmp_path):
    """`bdeu` of other methods takes counts for data; of this one it knows what the noise leaves of them."""
    tables = "[tables]\nepsilon = 1.0\ndelta = 1e-9\n"
    for score in ("bdeu", "dirichlet"):
        for more in ("", tables):
            assert read(tmp_path, f"{METHOD}score = '{score}'\n{more}").samples_graphs
    assert read(tmp_path, METHOD + tables, model="masked").samples_graphs
    with pytest.raises(Misuse, match="'bdeu' takes counts for data") as caught:
        read(tmp_path, "[structure]\nmethod = 'hill-climb'\nscore = 'bdeu'\n")
    assert "the method 'posterior'" in caught.value.hint


def test_peers_have_scores_of_pairs_only(peer_study):
    study = peer_study()
    structure = dataclasses.replace(study.structure, method="posterior", score="bdeu", parents=None)
    with pytest.raises(Misuse, match="'posterior' needs tables of whole families") as caught:
        rules.check(dataclasses.replace(study, structure=structure), source="study.toml")
    assert caught.value.code == "STUDY_UNSUPPORTED"


def test_more_variables_than_a_word_has_bits_are_refused(tmp_path):
    more = "".join(f'[[variable]]\nparty = "b"\nname = "v{i}"\ncategories = ["0", "1"]\n' for i in range(59))
    read(tmp_path, more + METHOD)
    with pytest.raises(Misuse, match="'posterior' with 65 variables, expected at most 64") as caught:
        read(tmp_path, more + more[: more.index("[[", 3)].replace("v0", "w") + METHOD)
    assert "a method that finds one graph" in caught.value.hint


def test_more_chains_than_a_checkpoint_holds_are_refused(tmp_path):
    """With noisy tables, whose graphs are sampled by ten replicates; without, as many chains as may be are within the limit."""
    more = "".join(f'[[variable]]\nparty = "b"\nname = "v{i}"\ncategories = ["0", "1"]\n' for i in range(59))
    tables = "[tables]\nepsilon = 1.0\ndelta = 1e-9\n"
    read(tmp_path, f"{more}{METHOD}[posterior]\nchains = 64\n")
    read(tmp_path, f"{more}{METHOD}{tables}[posterior]\nchains = 6\n")
    with pytest.raises(Misuse) as caught:
        read(tmp_path, f"{more}{METHOD}{tables}[posterior]\nchains = 7\n")
    assert (caught.value.code, caught.value.hint) == ("STUDY_INVALID", "ask for fewer chains")
    assert caught.value.message.endswith(
        "posterior.chains: 7 chains of 20000 steps with 64 variables for each of 10 replicates have a state of 145600000 bytes "
        "on disk, expected at most 134217728"
    )


def test_what_the_limit_counts_is_a_checkpoint():
    """The graphs of a chain, whatever its steps; but for a few numbers of the chains themselves."""
    sets = ParentSets(n_variables=2, starts=np.array([0, 1, 2]), masks=np.zeros(2, np.uint64), log_weight=np.zeros(2))
    for steps in (100, 5_000, 5_001, 40_000):
        chains = Chains(chains=1, steps=steps)
        state = chains.start(sets, 1)
        while chains.progress(state) < 1:
            state = chains.step(state)
        kept = chains.checkpoint(state)
        size = kept["kept_parents"].nbytes + kept["kept_weight"].nbytes
        assert 0.4 <= size / (8 * 3 * min(steps, KEPT_GRAPHS)) <= 1


def test_the_canonical_form_has_no_rule_without_the_method(tmp_path):
    study = dataclasses.replace(read(tmp_path, ""), posterior=PosteriorRule(steps=500))
    with pytest.raises(Misuse, match="'posterior', got 'auto'"):
        rules.check(study, source="study")
    other = dataclasses.replace(read(tmp_path, METHOD), posterior=PosteriorRule(gamma=2.0))
    with pytest.raises(Misuse, match="go with prior = 'penalty'"):
        rules.check(other, source="study")
    large = dataclasses.replace(read(tmp_path, METHOD), release=ReleaseRule(synthetic_records=20_000_000))
    with pytest.raises(Misuse, match="5 sets of 20000000 records"):
        rules.check(large, source="study")


LACKING = TEXT.replace('name = "x"\ncategories = ["0", "1", "2"]', 'name = "x"\ncategories = ["0", "1", "2"]\nMISSING')
AUGMENT = '[posterior]\nmissing = "augment"\n'


def lacking(
    tmp_path: Path, said: str, missing: str = '{ category = "2", spellings = [""] }', randomized: str = RAW
) -> Study:
    path = tmp_path / "study.toml"
    text = LACKING.replace("MODEL", "central").replace("MISSING", f"missing = {missing}")
    path.write_text(text + randomized + METHOD + said, encoding="utf-8")
    return read_study(path)


def test_missing_values_are_drawn_where_it_is_asked_for(tmp_path):
    study = lacking(tmp_path, AUGMENT)
    assert study.posterior == PosteriorRule(missing="augment")
    assert drawn_categories(study) == {0: 2}
    assert canonical.from_bytes(canonical.to_bytes(study)) == study
    plain = lacking(tmp_path, '[posterior]\nsteps = 500\nmissing = "category"\n')
    assert drawn_categories(plain) == {}
    assert "missing" not in json.loads(canonical.to_bytes(plain))["posterior"]


@pytest.mark.parametrize(
    ("code", "said", "how", "message"),
    [
        ("STUDY_INVALID", '[posterior]\nmissing = "impute"\n', {}, "got 'impute', expected one of category, augment"),
        ("STUDY_UNSUPPORTED", AUGMENT, {"randomized": RANDOMIZED}, "records as they are: column 'x' is randomized"),
        (
            "STUDY_UNSUPPORTED",
            AUGMENT + "[tables]\nepsilon = 1.0\ndelta = 1e-9\n",
            {},
            "records as they are: tables with noise have no records whose missing values could be drawn",
        ),
        (
            "STUDY_UNSUPPORTED",
            AUGMENT + '[[randomization]]\njointly = ["x", "y"]\nscheme = "none"\n',
            {},
            "columns 'x, y' is one column, and its missing values are combinations",
        ),
        (
            "STUDY_UNSUPPORTED",
            AUGMENT + '[[knowledge.rule]]\nkind = "implication"\nname = "r"\nif = { x = "0" }\nthen = { y = ["0"] }\n',
            {},
            "need not keep what [knowledge] states",
        ),
        (
            "STUDY_INVALID",
            AUGMENT,
            {"missing": '{ category = "2", spellings = [""] }\nother = "2"'},
            "'x': its missing values have the category of all others",
        ),
        (
            "STUDY_INVALID",
            AUGMENT + 'statistics = [["mle", "x", "2"]]\n',
            {},
            "'2' is what a missing value of 'x' is, and with missing = 'augment' none is",
        ),
        (
            "STUDY_INVALID",
            AUGMENT + 'statistics = [["overlap", "y", "0", "x", "1"]]\n',
            {},
            "the interval of the original records, which lack values of 'x'",
        ),
    ],
)
def test_where_missing_values_cannot_be_drawn_it_is_refused_by_name(tmp_path, code, said, how, message):
    with pytest.raises(Misuse) as caught:
        lacking(tmp_path, said, **how)
    assert caught.value.code == code
    assert message in caught.value.message


def test_missing_values_that_nobody_declares_cannot_be_drawn(tmp_path):
    with pytest.raises(Misuse, match="no variable declares missing values"):
        read(tmp_path, METHOD + AUGMENT, randomized=RAW)
    study = lacking(tmp_path, AUGMENT)
    two = dataclasses.replace(study.schema[0], labels=("1", "2"))
    schema = dataclasses.replace(study.schema, variables=(two, *study.schema.variables[1:]))
    with pytest.raises(Misuse, match="'x': one category is left without that of missing values"):
        check_posterior(dataclasses.replace(study, schema=schema), source="study")
