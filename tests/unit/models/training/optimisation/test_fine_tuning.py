import pytest
import torch
from safetensors.torch import load_file, save_file

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.errors import StoreError, TrainingError, UsageError
from models.inputs.categorical.record import CategoricalInput
from models.inputs.text.record import TextColumn
from models.nets.build import build_net
from models.nets.sizes import Sizes
from models.project_spec.blocks import Model, Train
from models.training.job import WEIGHTS_FILE
from models.training.optimisation.fine_tuning import freeze, load_origin, origin_of
from models.training.rank import run_job

ARGUMENTS = {"hidden": 8, "dropout": 0.2}


@pytest.fixture
def trained(make_job):
    """A finished job and its weights as an origin, with the preparation beside them, as a registered version has."""
    job = make_job(arguments=ARGUMENTS, folder="old")
    run_job(job)
    Preparation.load(job.prepared).save(job.folder)
    return job, origin_of(job.folder / WEIGHTS_FILE, "version 3")


def started(make_job, origin, folder="new", arguments=ARGUMENTS, start=None, **train):
    return make_job(arguments=arguments, folder=folder, start=start or {}, job={"start": origin}, **train)


def weights(job):
    return load_file(job.folder / WEIGHTS_FILE)


def test_training_goes_on_from_the_weights(make_job, trained):
    job, origin = trained
    old = run_job(job)
    first = run_job(started(make_job, origin, lr=1e-9, epochs=1)).epochs[0]
    fresh = run_job(make_job(arguments=ARGUMENTS, folder="fresh", lr=1e-9, epochs=1)).epochs[0]
    assert first["val_loss"] == pytest.approx(old.epochs[old.best_epoch - 1]["val_loss"], rel=0.05)
    assert first["val_loss"] < 0.9 * fresh["val_loss"]


def test_what_is_frozen_stays_to_the_bit_the_statistics_of_norms_too(make_job, trained):
    job, origin = trained
    made = started(make_job, origin, start={"freeze": ["trunk.first", "embeddings.*"]}, ema=0.5, accumulate=2)
    run_job(made)
    old, new = weights(job), weights(made)
    held = {name for name in old if name.startswith(("trunk.first", "embeddings"))}
    assert any("running_mean" in name for name in held)
    assert any("num_batches_tracked" in name for name in held)
    for name in old:
        assert torch.equal(old[name], new[name]) == (name in held), name


def test_killed_on_the_way_gives_the_same_bits(make_job, trained, monkeypatch):
    from models.training import loop

    _, origin = trained
    start = {"freeze": ["trunk.first.*"], "lr_scale": {"trunk.head": 0.3}}
    expected = run_job(started(make_job, origin, "whole", start=start))
    job = started(make_job, origin, "killed", start=start, async_checkpoints=False)
    original = loop.TrainingSession.checkpoint

    def killed(session):
        original(session)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop.TrainingSession, "checkpoint", killed)
        with pytest.raises(KeyboardInterrupt):
            run_job(job)
    result = run_job(job)
    assert result.resumed_from
    assert result.weights_sha256 == expected.weights_sha256


def test_a_net_that_does_not_fit_names_the_layers_and_partial_takes_what_does(make_job, trained):
    job, origin = trained
    other = {**ARGUMENTS, "layers": 3}
    with pytest.raises(TrainingError, match=r"version 3 does not fit.*trunk\.blocks\.1\.0\.weight has none"):
        run_job(started(make_job, origin, arguments=other))
    made = started(make_job, origin, "partly", arguments=other, start={"partial": True}, lr=1e-12, weight_decay=0.0)
    run_job(made)
    torch.testing.assert_close(weights(made)["trunk.head.weight"], weights(job)["trunk.head.weight"])


def test_weights_of_another_net_are_refused_with_both_nets_and_the_cure(make_job, trained):
    job, origin = trained
    of_file = (
        r"version 3 is of another net with the layers trunk\.blocks\.0\.1; .*, and model\.net transformer, "
        r"which is trained, has .*: begin from weights of transformer, or name the net of these weights in model\.net$"
    )
    with pytest.raises(TrainingError, match=of_file):
        run_job(make_job(net="transformer", arguments={"width": 8}, folder="new", job={"start": origin}))
    known = origin.model_copy(update={"model": job.model})
    with pytest.raises(TrainingError, match=r"version 3 is of model\.net mlp with .*, and model\.net transformer, "):
        run_job(make_job(net="transformer", arguments={"width": 8}, folder="new", job={"start": known}))


def test_an_own_net_that_shares_layers_with_the_weights_may_take_them(make_job, trained, tmp_path):
    job, origin = trained
    known = origin.model_copy(update={"model": job.model})
    net = build_net(
        Model(net="mlp", arguments={**ARGUMENTS, "layers": 3}), Sizes.of(Preparation.load(job.prepared)), tmp_path
    )
    with pytest.raises(
        TrainingError, match=r"model\.net ./own\.py:Net, .* or say `partial: true` to begin with the layers"
    ):
        load_origin(net, "./own.py:Net", known, Preparation.load(job.prepared), partial=False)
    load_origin(net, "./own.py:Net", known, Preparation.load(job.prepared), partial=True)
    assert torch.equal(net.trunk["head"].weight, weights(job)["trunk.head.weight"])


def test_another_file_than_was_meant_is_refused(make_job, trained):
    job, origin = trained
    save_file({"trunk.head.weight": torch.zeros(1, 8)}, job.folder / WEIGHTS_FILE)
    with pytest.raises(StoreError, match="hash differs"):
        run_job(started(make_job, origin))


def test_categories_are_found_by_name_and_new_ones_begin_fresh(make_job, trained, tmp_path):
    job, origin = trained
    before = Preparation.load(job.prepared)
    now = before.with_inputs("categorical", [CategoricalInput(name="c", categories=["w", "x", "u"])])
    torch.manual_seed(3)
    net = build_net(Model(net="mlp", arguments=ARGUMENTS), Sizes.of(now), tmp_path)
    fresh = net.embeddings[0].weight.detach().clone()
    load_origin(net, "mlp", origin, now, partial=False)
    old, rows = weights(job)["embeddings.0.weight"], net.embeddings[0].weight
    assert torch.equal(rows[[0, 1, 3]], old[[0, 3, 1]])
    assert torch.equal(rows[2], fresh[2])


def test_other_columns_are_refused_and_other_classes_need_a_fresh_head(make_job, trained, tmp_path):
    job, origin = trained
    before = Preparation.load(job.prepared)
    renamed = [part.model_copy(update={"name": f"z{part.name}"}) for part in before.numeric]
    net = build_net(Model(net="mlp", arguments=ARGUMENTS), Sizes.of(before), tmp_path)
    with pytest.raises(TrainingError, match="other numeric columns"):
        load_origin(net, "mlp", origin, before.with_inputs("numeric", renamed), partial=True)
    classes = before.model_copy(update={"target": before.target.model_copy(update={"classes": ["old", "new"]})})
    with pytest.raises(TrainingError, match=r"trunk\.head"):
        load_origin(net, "mlp", origin, classes, partial=False)
    head = net.trunk["head"].weight.detach().clone()
    load_origin(net, "mlp", origin, classes, partial=True)
    assert torch.equal(net.trunk["head"].weight, head)


def test_patterns_that_fit_nothing_or_everything_are_refused():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with pytest.raises(UsageError, match="trnk"):
        freeze(net, Train(start={"freeze": ["trnk.*"]}))
    with pytest.raises(UsageError, match="whole net"):
        freeze(net, Train(start={"freeze": ["*"]}))


FORWARD_X = """
import torch

class Net(torch.nn.Module):
    def __init__(self, channels, num_outputs):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, 4, 3)
        self.fc = torch.nn.Linear(4, num_outputs)

    def forward(self, x):
        return self.fc(self.conv1(x).mean(dim=(2, 3)))
"""


@pytest.mark.parametrize("prefix", ["", "net.", "module."])
def test_weights_of_a_net_with_forward_x_load_by_their_own_names(make_job, tmp_path, prefix):
    (tmp_path / "own.py").write_text(FORWARD_X)
    job = make_job("image", "multiclass", "./own.py:Net", epochs=1, start={"partial": True, "freeze": ["conv1"]})
    net = build_net(job.model, Sizes.of(Preparation.load(job.prepared)), tmp_path)
    stored = {prefix + name.removeprefix("net."): tensor + 1 for name, tensor in net.state_dict().items()}
    stored[f"{prefix}fc.weight"], stored[f"{prefix}fc.bias"] = torch.zeros(1000, 4), torch.zeros(1000)
    save_file(stored, tmp_path / "pretrained.safetensors")
    origin = origin_of(tmp_path / "pretrained.safetensors", "pretrained.safetensors")
    run_job(job.model_copy(update={"start": origin}))
    assert torch.equal(weights(job)["net.conv1.weight"], stored[f"{prefix}conv1.weight"])
    with pytest.raises(TrainingError, match=r"net\.fc\.bias has \(1000,\), the net \(3,\)"):
        load_origin(net, "./own.py:Net", origin, Preparation.load(job.prepared), partial=False)


def test_weights_with_the_prefix_load_into_a_net_without_an_adapter(make_job, trained, tmp_path):
    job, _ = trained
    save_file({f"net.{name}": tensor for name, tensor in weights(job).items()}, tmp_path / "inside.safetensors")
    net = build_net(job.model, Sizes.of(Preparation.load(job.prepared)), tmp_path)
    load_origin(net, "mlp", origin_of(tmp_path / "inside.safetensors", "inside"), Preparation.load(job.prepared), False)
    assert all(torch.equal(tensor, weights(job)[name]) for name, tensor in net.state_dict().items())


def of_texts(length, words, stems):
    """Return a preparation of two categories and two texts, of which the first has these words."""
    texts = [
        TextColumn(name="note", num_terms=9, num_features=3, length=length, words=words, stems=stems),
        TextColumn(name="subject", num_terms=9, num_features=3, length=2, words=["red", "blue"]),
    ]
    target = TargetEncoding(name="y", classes=["no", "yes"])
    colours = CategoricalInput(name="c", categories=list("abcdef"))  # as many indices as `before` has words
    return Preparation(kind="table", task="binary", target=target, inputs=[colours, *texts])


def begun(before, now, tmp_path):
    """Return the state of a transformer of `before`, of one of `now`, and of the latter once it began."""
    model = Model(net="transformer", arguments={"width": 8, "heads": 2, "layers": 1})
    torch.manual_seed(3)
    old, net = (build_net(model, Sizes.of(each, "transformer"), tmp_path) for each in (before, now))
    fresh = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    before.save(tmp_path)
    save_file(old.state_dict(), tmp_path / WEIGHTS_FILE)
    load_origin(net, "transformer", origin_of(tmp_path / WEIGHTS_FILE, "version 3"), now, partial=False)
    return old.state_dict(), fresh, net.state_dict()


def test_words_and_their_places_are_found_by_name_and_new_ones_begin_fresh(tmp_path):
    before, now = of_texts(3, ["sun", "rain", "snows"], ["snow"]), of_texts(4, ["hail", "rainy", "rain"], ["rain"])
    old, fresh, loaded = begun(before, now, tmp_path)
    name = "tokens.words.embeddings.0.weight"
    assert torch.equal(loaded[name][[0, 1, 4, 5, 6]], old[name][[0, 1, 3, 5, 6]])
    assert torch.equal(loaded[name][[2, 3]], fresh[name][[2, 3]])
    name = "tokens.words.embeddings.1.weight"
    assert torch.equal(loaded[name][:2], old[name][:2])
    assert torch.equal(loaded[name][2:], fresh[name][2:])
    was, there = old["positions"][0], loaded["positions"][0]
    assert torch.equal(there[[*range(10), 11, 12]], was)
    assert torch.equal(there[10], fresh["positions"][0, 10])
    assert torch.equal(loaded["tokens.embeddings.0.weight"], old["tokens.embeddings.0.weight"])


def test_a_net_of_before_there_were_words_begins_its_words_fresh(tmp_path):
    now = of_texts(4, ["hail", "rain"], [])
    texts = [text.model_copy(update={"length": 0, "words": [], "stems": []}) for text in now.texts]
    old, fresh, loaded = begun(now.with_inputs("text", texts), now, tmp_path)
    assert torch.equal(loaded["positions"][0, :7], old["positions"][0])
    for name in ("tokens.words.embeddings.0.weight", "tokens.words.embeddings.1.weight"):
        assert torch.equal(loaded[name], fresh[name])


def test_texts_of_another_name_are_refused(tmp_path):
    before = of_texts(3, ["sun"], [])
    renamed = before.with_inputs("text", [before.texts[0], before.texts[1].model_copy(update={"name": "title"})])
    with pytest.raises(TrainingError, match=r"other texts \(then subject, now title\)"):
        begun(before, renamed, tmp_path)
