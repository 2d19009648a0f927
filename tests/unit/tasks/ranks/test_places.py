import pytest

from models.errors import UsageError
from models.project_spec.blocks import Spec, Train
from models.project_spec.search import Search
from tasks.ranks.kubernetes import Kubernetes
from tasks.ranks.places import PLACES, check_places, checked_spec, find_place, find_pool_place, find_search_place
from tasks.ranks.slurm import Slurm
from tasks.ranks.torchrun import Torchrun

TEXT = """\
gpu:
  engine: slurm
  partition: a100
  time: 12:00:00
  options: [--gres=gpu:8]
hand: {engine: torchrun, head: "10.0.0.1:29400"}
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in Slurm.programs:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def spec_of(train=None, search=None):
    data = {"source": "a.csv", "target": "y"}
    return Spec(name="tiny", data=data, train=train or Train(), search=search or Search())


def written(workspace, text=TEXT):
    (workspace.root / "places.yaml").write_text(text)
    return workspace


def test_a_place_is_read_by_its_engine(workspace, programs):
    place = find_place(written(workspace), Train(on="gpu", nodes="2"))
    assert isinstance(place, Slurm)
    assert (place.partition, place.time, place.options) == ("a100", "12:00:00", ["--gres=gpu:8"])
    assert isinstance(find_place(workspace, Train(on="hand")), Torchrun)
    assert find_place(workspace, Train()) is None
    assert find_place(workspace, Train(nodes="1:4")) is None


def test_numbers_are_names_of_partitions_and_accounts(workspace, programs):
    place = find_place(written(workspace, "gpu: {engine: slurm, partition: 5, account: 123456}\n"), Train(on="gpu"))
    assert (place.partition, place.account) == ("5", "123456")


def test_another_file_may_be_named(workspace, tmp_path, monkeypatch):
    (tmp_path / "other.yaml").write_text(TEXT.replace("hand", "foot"))
    monkeypatch.setenv(PLACES, str(tmp_path / "other.yaml"))
    assert isinstance(find_place(workspace, Train(on="foot")), Torchrun)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "gpu:\n  engine: slrm\n",
            r"places.yaml:2: gpu.engine: got 'slrm', expected one of slurm, kubernetes, torchrun",
        ),
        ("gpu: 3\n", r"places.yaml:1: gpu.engine: got None, expected one of slurm"),
        (
            "gpu:\n  engine: slurm\n  partion: a\n",
            r"places.yaml:3: gpu.partion: unknown key: did you mean 'parti",
        ),
        ("gpu:\n  engine: slurm\n  cpus: 0\n", r"places.yaml:3: gpu.cpus: got 0, expected greater than or equal to 1"),
        ("gpu:\n  engine: slurm\n  options: [gpu]\n", r"places.yaml:3: gpu.options.0: got 'gpu', expected .*\^--"),
        ("gpu:\n  engine: torchrun\n", r"places.yaml:1: gpu.head: missing; it is required"),
        ("gup: {engine: slurm}\n", r"train.on: got 'gpu', did you mean 'gup'\?, or a new entry of .*places.yaml"),
        ("gpu: [\n", r"places.yaml:2: not valid YAML"),
        (
            "gpu: {engine: [slurm]}\n",
            r"places.yaml:1: gpu.engine: got \['slurm'\], expected one of slurm, kubernetes, torchrun",
        ),
        (
            "gpu: {engine: {a: 1}}\n",
            r"places.yaml:1: gpu.engine: got \{'a': 1\}, expected one of slurm, kubernetes, torchrun",
        ),
        ("- gpu\n", r"places.yaml:1: got a list, expected keys, such as `key: value`$"),
        ("", r"places.yaml:1: got an empty file, expected keys, such as `key: value`$"),
        ("gpu: {engine: torchrun, head: 'a:0'}\n", r"places.yaml:1: gpu.head: got 'a:0', expected"),
        (
            "gpu:\n  engine: slurm\n  options: [--job-name=mine]\n",
            r"places.yaml:3: gpu.options: got .*, expected another option than --job-name=mine: Loopline sets",
        ),
    ],
)
def test_a_wrong_place_is_refused(workspace, programs, text, message):
    with pytest.raises(UsageError, match=message):
        find_place(written(workspace, text), Train(on="gpu"))


def test_without_the_programs_of_slurm_nothing_can_be_submitted(workspace, programs):
    (programs / "sbatch").unlink()
    with pytest.raises(UsageError, match=r"places.yaml:1: gpu: this machine has no sbatch: .* login node"):
        find_place(written(workspace), Train(on="gpu"))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("invalid partition specified: a100", r"places.yaml:1: gpu: .*Slurm refuses it: invalid partition .*: a100"),
        ("sbatch: unrecognized option --nonsense", r"places.yaml:1: gpu: .*unrecognized option"),
        ("sbatch: fatal: Could not establish a configuration source", r"places.yaml:1: gpu: .*configuration source"),
        ("Requested node configuration is not available", ""),  # the same words if its nodes are down today
        ("Unable to contact slurm controller (connect failure)", ""),
    ],
)
def test_slurm_refuses_a_place_before_anything_ran(workspace, programs, answer, message):
    (programs / "sbatch").write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit 1\n")
    train = Train(on="gpu")
    assert find_place(written(workspace), train), "Slurm is asked once, when the spec is read"
    if not message:
        check_places(workspace, spec_of(train))
        return
    with pytest.raises(UsageError, match=message):
        check_places(workspace, spec_of(train))


def test_more_ranks_than_the_gpus_of_a_node_are_refused(workspace, programs):
    written(workspace, "gpu: {engine: slurm, options: [--gres=gpu:a100:4]}\n")
    with pytest.raises(UsageError, match=r"places.yaml:1: gpu: train.ranks: got 8, but a node of this place has 4 GPU"):
        check_places(workspace, spec_of(Train(on="gpu", ranks=8)))


def test_the_spec_is_refused_at_its_line(make_project, workspace):
    project = make_project("tiny", "train:\n  on: gpu\n")
    with pytest.raises(UsageError, match=r"project.yaml:\d+: train.on: got 'gpu', expected one of here, or a new"):
        checked_spec(project)
    with pytest.raises(UsageError, match=r"command line: train.nodes: got 2, expected 1 where train.on is here"):
        checked_spec(project, ["train.on=here", "train.nodes=2"])
    assert checked_spec(project, is_for_here=False).train.on == "gpu"
    (workspace.root / "places.yaml").write_text("gpu: {engine: slurp}\n")
    with pytest.raises(UsageError, match=r"places.yaml:1: gpu.engine: got 'slurp'"):
        checked_spec(project)


def test_trials_need_an_engine_that_starts_jobs_by_itself(workspace, programs):
    written(workspace)
    assert isinstance(find_search_place(workspace, Search(on="gpu")), Slurm)
    assert find_search_place(workspace, Search()) is None
    with pytest.raises(UsageError, match=r"search.on: got 'hand', a place of the engine torchrun, .* expected here or"):
        find_search_place(workspace, Search(on="hand"))
    with pytest.raises(UsageError, match=r"search.on: got 'gup', did you mean 'gpu'\?"):
        find_search_place(workspace, Search(on="gup"))


def test_the_place_of_the_trials_is_judged_too(workspace, programs):
    (programs / "sbatch").write_text("#!/bin/sh\necho 'invalid partition specified: a100' >&2\nexit 1\n")
    written(workspace)
    with pytest.raises(UsageError, match=r"places.yaml:1: gpu: .*Slurm refuses it: invalid partition"):
        check_places(workspace, spec_of(search=Search(on="gpu")))
    check_places(workspace, spec_of(search=Search(on="gpu", trials=0)))


def test_a_place_on_kubernetes_is_read_and_has_a_fixed_number_of_nodes(workspace, programs):
    (programs / "kubectl").write_text("#!/bin/sh\n")
    (programs / "kubectl").chmod(0o755)
    written(workspace, "big: {engine: kubernetes, image: i, claim: work, mount: /workspace, gpus: 2}\n")
    assert isinstance(find_place(workspace, Train(on="big")), Kubernetes)
    assert isinstance(find_search_place(workspace, Search(on="big")), Kubernetes)
    check_places(workspace, spec_of(Train(on="big", ranks=2)))
    with pytest.raises(UsageError, match=r"train.nodes: got 1:4, expected one number"):
        check_places(workspace, spec_of(Train(on="big", nodes="1:4")))
    with pytest.raises(UsageError, match=r"places.yaml:1: big: train.ranks: got 8, but a node of this place has 2 GPU"):
        check_places(workspace, spec_of(Train(on="big", ranks=8)))


POOL = "pool: {engine: kubernetes, image: reg/loopline, claim: workspace, mount: /workspace, namespace: ml}\n"


@pytest.fixture
def outgrown(monkeypatch):
    monkeypatch.setenv("LOOPLINE_STATE_URL", "postgresql://ada@db.example/loopline")
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example:4200/api")


def test_flow_runs_are_pods_of_the_entry_pool(workspace, outgrown, monkeypatch):
    monkeypatch.setenv("PATH", "")  # a worker needs no kubectl
    assert find_pool_place(workspace) is None
    place = find_pool_place(written(workspace, POOL))
    assert isinstance(place, Kubernetes)
    assert place.namespace == "ml"
    assert find_pool_place(written(workspace)) is None


def test_a_pool_without_pods_is_refused(workspace, outgrown):
    with pytest.raises(UsageError, match=r"places.yaml:1: pool.engine: got 'slurm', expected kubernetes, .* remove"):
        find_pool_place(written(workspace, "pool: {engine: slurm}\n"))


@pytest.mark.parametrize("missing", [["LOOPLINE_STATE_URL"], ["LOOPLINE_STATE_URL", "PREFECT_API_URL"]])
def test_pods_need_stores_that_they_can_reach(workspace, outgrown, monkeypatch, missing):
    for name in missing:
        monkeypatch.delenv(name)
    with pytest.raises(UsageError, match=rf"places.yaml:1: pool: flow runs in pods need {' and '.join(missing)}, "):
        find_pool_place(written(workspace, POOL))
