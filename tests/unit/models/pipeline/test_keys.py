"""Identity: the same work has the same key; anything that can change a result changes it, and nothing else does."""

import ast
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from models.pipeline import keys as identity
from models.pipeline.keys import CodeReader, canonical, code_parts, differences, key_of, library_parts, spec_parts
from models.project_spec.blocks import Data, Spec
from tests.wide import examples

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        random.Random(1).shuffle(keys)
        return {key: shuffled(value[key]) for key in reversed(keys)}
    return [shuffled(inner) for inner in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(max_size=5), values, max_size=5))
def test_the_order_of_keys_does_not_matter(parts: dict[str, Any]) -> None:
    assert key_of(parts) == key_of(shuffled(parts))


@given(values, values)
def test_canonical_text_is_equal_only_for_equal_json(one: Any, two: Any) -> None:
    if canonical(one) == canonical(two):
        assert one == two


@given(st.dictionaries(st.sampled_from(["spec:a", "code:b", "input:c", "library:d"]), st.integers(0, 3)))
def test_differences_are_empty_only_for_equal_parts(parts: dict[str, Any]) -> None:
    assert differences(parts, parts) == []
    assert len(differences(parts, {})) == len(parts)


def test_a_difference_names_key_old_and_new() -> None:
    told = differences(
        {"spec:train.lr": 0.1, "code:a.py": "1", "library:torch": "2", "input:prepare": "x"},
        {"spec:train.lr": 0.2, "code:a.py": "2", "library:torch": "1", "input:search": "y"},
    )
    assert told[0] == "train.lr: 0.2 -> 0.1"
    assert set(told[1:]) == {"input prepare: new", "input search: gone", "code a.py: changed", 'torch: "1" -> "2"'}


def test_long_values_are_shortened() -> None:
    (line,) = differences({"spec:x": "a" * 500}, {"spec:x": None})
    assert len(line) < 100


def spec(**blocks: Any) -> Spec:
    return Spec(name="tiny", data=Data(source="a.csv", target="y"), **blocks)


def test_spec_parts_are_the_leaves_under_the_paths_asked_for() -> None:
    parts = spec_parts(spec().model_dump(mode="json"), ["train", "-train.max_restarts", "goal.metric"])
    assert parts["spec:train.lr"] == 1e-3
    assert parts["spec:goal.metric"] is None
    assert "spec:train.max_restarts" not in parts
    assert "spec:goal.direction" not in parts
    assert not any(key.startswith("spec:data") for key in parts)


def test_a_path_is_whole_keys_not_a_prefix_of_letters() -> None:
    assert spec_parts(spec().model_dump(mode="json"), ["data.t"]) == {}
    assert set(spec_parts(spec().model_dump(mode="json"), ["data.target"])) == {"spec:data.target"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "source.py").write_text(
        '"""Doc."""\nimport cleaning\nfrom shapes import area\n\n\n'
        'def load():\n    """Doc."""\n    return cleaning.run(area)\n'
    )
    (tmp_path / "cleaning.py").write_text("import deeper\n\n\ndef run(x):\n    return deeper.f(x)\n")
    (tmp_path / "deeper.py").write_text("def f(x):\n    return x\n")
    (tmp_path / "shapes.py").write_text("area = 3\n")
    (tmp_path / "unused.py").write_text("x = 1\n")
    return tmp_path


def parts_of(project: Path) -> dict[str, Any]:
    return code_parts([], [project / "source.py"])


def test_a_users_file_is_followed_to_its_siblings_and_theirs(project: Path) -> None:
    assert set(parts_of(project)) == {"code:source.py", "code:cleaning.py", "code:deeper.py", "code:shapes.py"}


@pytest.mark.parametrize("name", ["source.py", "cleaning.py", "deeper.py", "shapes.py"])
def test_a_changed_function_changes_the_fingerprint_of_its_file_alone(project: Path, name: str) -> None:
    before = parts_of(project)
    path = project / name
    path.write_text(path.read_text().replace("return", "return not").replace("3", "4"))
    after = parts_of(project)
    assert differences(after, before) == [f"code {name}: changed"]


def test_comments_docstrings_and_layout_change_nothing(project: Path) -> None:
    before = parts_of(project)
    path = project / "source.py"
    path.write_text(
        '"""Another\n\ndoc."""\n# why\nimport cleaning\nfrom shapes import area\ndef load():\n\n\n'
        '    """Another."""\n    return (  # here\n        cleaning.run(area)\n    )\n'
    )
    assert parts_of(project) == before


def test_a_string_that_is_no_docstring_counts(project: Path) -> None:
    path = project / "deeper.py"
    path.write_text("def f(x):\n    y = 'one'\n    return x + y\n")
    before = parts_of(project)
    path.write_text("def f(x):\n    y = 'two'\n    return x + y\n")
    assert parts_of(project) != before


def test_a_file_that_does_not_parse_counts_by_its_bytes(project: Path) -> None:
    path = project / "deeper.py"
    path.write_text("def f(:\n")
    before = parts_of(project)
    path.write_text("def g(:\n")
    assert parts_of(project) != before


def test_a_package_beside_a_users_file_is_followed(project: Path) -> None:
    package = project / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import f\n")
    (package / "inner.py").write_text("def f():\n    return 1\n")
    (project / "source.py").write_text("import mine\n\n\ndef load():\n    return mine.f()\n")
    before = parts_of(project)
    (package / "inner.py").write_text("def f():\n    return 2\n")
    assert parts_of(project) != before
    between = parts_of(project)
    (package / "__init__.py").write_text("from .inner import f\n\nx = 1\n")
    assert parts_of(project) != between


def test_folders_without_an_init_are_followed_to_the_second_file_and_on(tmp_path: Path) -> None:
    """Python looks for `blocks.inner` beside the file that was named, wherever the import stands."""
    (tmp_path / "blocks").mkdir()
    (tmp_path / "net.py").write_text("from blocks.outer import Net\n")
    (tmp_path / "blocks" / "outer.py").write_text("from blocks.inner import WIDTH\n\n\nclass Net:\n    w = WIDTH\n")
    (tmp_path / "blocks" / "inner.py").write_text("WIDTH = 1\n")
    before = code_parts([], [tmp_path / "net.py"])
    assert set(before) == {"code:net.py", "code:outer.py", "code:inner.py"}
    (tmp_path / "blocks" / "inner.py").write_text("WIDTH = 2\n")
    assert differences(code_parts([], [tmp_path / "net.py"]), before) == ["code inner.py: changed"]


def test_two_files_of_one_name_both_count(tmp_path: Path) -> None:
    one, two = tmp_path / "a" / "net.py", tmp_path / "b" / "net.py"
    for path in (one, two):
        path.parent.mkdir()
        path.write_text("x = 1\n")
    before = code_parts([], [one, two])
    for path in (one, two):
        path.write_text("x = 2\n")
        assert code_parts([], [one, two]) != before
        path.write_text("x = 1\n")


def test_moving_a_project_changes_nothing(project: Path, tmp_path: Path) -> None:
    before = parts_of(project)
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in tmp_path.glob("*.py"):
        (moved / path.name).write_text(path.read_text())
    assert parts_of(moved) == before


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small tree of our own in place of the clone."""
    monkeypatch.setattr(identity, "ROOT", tmp_path)
    files = {
        "tasks/act.py": "import torch\nfrom models.far import f\nfrom models import near\n"
        "from tasks.loop import loop\n",
        "tasks/loop/loop.py": "x = 1\n",
        "models/__init__.py": "",
        "models/far.py": "from models.errors import E\nimport models.farther\nf = E\n",
        "models/farther.py": "y = 1\n",
        "models/near.py": "z = 1\n",
        "models/errors.py": "E = 1\n",
        "models/other.py": "o = 1\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_our_own_imports_are_followed_through_modules(clone: Path) -> None:
    found = set(code_parts(["tasks.act"]))
    assert {"code:tasks/act.py", "code:models/far.py", "code:models/farther.py", "code:models/near.py"} <= found
    assert "code:models/other.py" not in found


def test_machinery_and_wording_do_not_count(clone: Path) -> None:
    before = code_parts(["tasks.act"])
    for name in ("tasks/loop/loop.py", "models/errors.py"):
        (clone / name).write_text("changed = True\n")
    assert code_parts(["tasks.act"]) == before


def test_a_change_far_down_counts(clone: Path) -> None:
    before = code_parts(["tasks.act"])
    (clone / "models" / "farther.py").write_text("y = 2\n")
    assert differences(code_parts(["tasks.act"]), before) == ["code models/farther.py: changed"]


def test_a_pattern_stands_for_the_modules_that_are_imported_by_name(clone: Path) -> None:
    for kind in ("numeric", "text"):
        (clone / "models" / kind).mkdir()
        (clone / "models" / kind / "rows.py").write_text("from models.far import f\n")
        (clone / "models" / kind / "nodes.py").write_text("n = 1\n")
    before = code_parts(["tasks.act", "models.*.rows"])
    assert set(before) - set(code_parts(["tasks.act"])) == {"code:models/numeric/rows.py", "code:models/text/rows.py"}
    (clone / "models" / "text" / "rows.py").write_text("from models.far import f\n\nwidth = 2\n")
    (clone / "models" / "text" / "nodes.py").write_text("n = 2\n")
    edited = code_parts(["tasks.act", "models.*.rows"])
    assert differences(edited, before) == ["code models/text/rows.py: changed"]
    (clone / "models" / "tags").mkdir()
    (clone / "models" / "tags" / "rows.py").write_text("t = 1\n")
    assert differences(code_parts(["tasks.act", "models.*.rows"]), edited) == ["code models/tags/rows.py: new"]


@pytest.mark.parametrize("name", ["models.gone", "models.*.gone"])
def test_a_module_that_is_not_there_is_no_code_without_a_word(clone: Path, name: str) -> None:
    with pytest.raises(LookupError, match=re.escape(name)):
        code_parts([name])


def test_the_memory_gives_what_reading_gives_and_notices_edits(clone: Path) -> None:
    memory = clone / "code.json"
    for text in ("y = 1\n", "y = 1\n", "y = 234\n"):
        (clone / "models" / "farther.py").write_text(text)
        reader = CodeReader(memory)
        assert reader.parts(["tasks.act"]) == code_parts(["tasks.act"])
        reader.save()


def test_a_reader_sees_one_moment_until_it_is_renewed(clone: Path) -> None:
    reader = CodeReader()
    before = reader.parts(["tasks.act"])
    (clone / "models" / "farther.py").write_text("y = 2\n")
    assert reader.parts(["tasks.act"]) == before
    reader.renew()
    assert reader.parts(["tasks.act"]) == code_parts(["tasks.act"]) != before


def test_code_that_is_known_is_not_read_again(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = clone / "code.json"
    reader = CodeReader(memory)
    before = reader.parts(["tasks.act"])
    reader.save()
    monkeypatch.delattr(identity, "_fingerprint")
    assert CodeReader(memory).parts(["tasks.act"]) == before
    assert CodeReader(clone / "of-a-new-workspace.json").parts(["tasks.act"]) == before


def test_a_new_workspace_notices_edits_of_our_own_code(clone: Path) -> None:
    for number, text in enumerate(("y = 1\n", "y = 234\n")):
        (clone / "models" / "farther.py").write_text(text)
        reader = CodeReader(clone / f"{number}.json")
        assert reader.parts(["tasks.act"]) == code_parts(["tasks.act"])
        reader.save()


def test_fingerprints_that_cannot_stand_beside_bytecode_are_the_workspaces(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    reader = CodeReader(clone / "code.json")
    before = reader.parts(["tasks.act"])
    reader.save()
    assert not list(clone.rglob("__pycache__"))
    monkeypatch.delattr(identity, "_fingerprint")
    assert CodeReader(clone / "code.json").parts(["tasks.act"]) == before


def test_a_path_that_the_spec_lacks_has_no_leaves() -> None:
    document = spec().model_dump(mode="json")
    assert spec_parts(document, ["train.start.weights", "data.nothing", "nothing"]) == {}
    assert spec_parts(document, ["train.start"]) == {"spec:train.start": None}


def test_library_versions_are_those_installed() -> None:
    assert set(library_parts(["numpy", "pydantic"])) == {"library:numpy", "library:pydantic"}
    assert library_parts(["pytest"])["library:pytest"] == pytest.__version__


names = st.sampled_from(["a", "b", "total", "x1"])
simple = st.builds("    {0} = {1} + {2}".format, names, st.integers(0, 9), st.integers(0, 9))


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(simple, min_size=1, max_size=5), comment=st.text("abc #\"'", max_size=10), at=st.integers(0, 5))
def test_any_comment_anywhere_changes_nothing(tmp_path: Path, lines: list[str], comment: str, at: int) -> None:
    path = tmp_path / "net.py"
    path.write_text("def f():\n" + "\n".join(lines) + "\n")
    before = code_parts([], [path])
    commented = [*lines[:at], f"    # {comment}", *lines[at:]]
    path.write_text("def f():\n" + "\n".join(commented) + "\n")
    ast.parse(path.read_text())
    assert code_parts([], [path]) == before


def test_a_package_that_a_users_file_imports_counts_by_the_version_of_its_distribution(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "source.py").write_text(
        "import json\nimport scipy.stats\nfrom sklearn import svm\nimport no_such_thing\n"
    )
    before = parts_of(project)
    assert {part for part in before if part.startswith("library:")} == {"library:scipy", "library:sklearn"}
    real = identity._version
    monkeypatch.setattr(identity, "_version", lambda name: real(name) + (".99" if name == "scikit-learn" else ""))
    after = parts_of(project)
    assert {part for part in after if after[part] != before[part]} == {"library:sklearn"}


def test_a_module_of_an_editable_install_is_followed_as_ones_own(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path_factory.mktemp("editable")
    package = place / "teamlib_of_a_test"
    package.mkdir()
    for name, text in {"__init__": "", "feat": "from teamlib_of_a_test.extra import K\n", "extra": "K = 1\n"}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(place))
    (project / "source.py").write_text("from teamlib_of_a_test.feat import K\n")
    before = parts_of(project)
    (package / "extra.py").write_text("K = 2\n")
    after = parts_of(project)
    assert {part for part in after if after[part] != before[part]} == {"code:extra.py"}


def test_of_installed_packages_the_named_one_is_followed_and_its_neighbours_count_by_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followed file by file, a net of a package that imports torch took a minute to have a key."""
    site = tmp_path / "site-packages"
    files = {
        "named_of_a_test/__init__.py": "",
        "named_of_a_test/net.py": "import neighbour_of_a_test\nfrom named_of_a_test.blocks import K\n",
        "named_of_a_test/blocks.py": "K = 1\n",
        "neighbour_of_a_test/__init__.py": "n = 1\n",
        "neighbour_of_a_test-1.2.dist-info/METADATA": "Name: neighbour_of_a_test\nVersion: 1.2\n",
    }
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    monkeypatch.syspath_prepend(str(site))
    net = site / "named_of_a_test" / "net.py"
    before = code_parts([], [net])
    followed = {f"code:{name}.py" for name in ("__init__", "net", "blocks")}
    assert set(before) == {*followed, "library:named_of_a_test", "library:neighbour_of_a_test"}
    assert before["library:neighbour_of_a_test"] == "1.2"
    (site / "named_of_a_test" / "blocks.py").write_text("K = 2\n")
    assert differences(code_parts([], [net]), before) == ["code blocks.py: changed"]
