"""Of each sort of row it is said what the product has, and what projects and places bring, and from where."""

from tasks.operations.registered import OURS, registered


def test_rows_of_projects_and_places_are_listed_with_where_they_are(workspace, make_project) -> None:
    project = make_project("tiny", "goal: {metric: './costs.py:METRIC'}\nmodel: {net: 'acme.nets:Wide'}\n")
    make_project("plain")
    (workspace.root / "places.yaml").write_text(
        'lab: {engine: "./jobs.py:LAUNCHER"}\nhand: {engine: torchrun, head: "h:1"}\n'
    )
    rows = registered(workspace)
    assert {*rows} == {*OURS} == {"families", "sources", "launchers", "metrics", "expectations", "augmentations"}
    assert rows["launchers"] == "of Loopline: slurm, kubernetes, torchrun; of projects: ./jobs.py:LAUNCHER (lab)"
    assert rows["metrics"].endswith(f"; of projects: ./costs.py:METRIC ({project.folder.name})")
    assert rows["families"].endswith(f"; of projects: acme.nets:Wide ({project.folder.name})")
    assert rows["expectations"].startswith("of Loopline: column_distinct_values_to_be_in_set, ")


def test_a_spec_that_is_none_is_left_to_its_own_check(workspace, make_project) -> None:
    make_project("tiny").spec_path.write_text("data: {}\n")
    (workspace.root / "places.yaml").write_text("gpu: [\n")
    assert "of projects" not in "".join(registered(workspace).values())
