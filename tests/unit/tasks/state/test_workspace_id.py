from tasks.host import database
from tasks.state.workspace_id import workspace_id


def test_a_workspace_has_an_id_that_stays_and_no_other_has(tmp_path):
    roots = [tmp_path / name for name in "ab"]
    for root in roots:
        root.mkdir()
    first, second = (workspace_id(root) for root in roots)
    assert first == workspace_id(roots[0])
    assert first != second
    assert len(first) == 32


def test_a_database_that_was_put_back_from_before_the_id_gets_the_same(tmp_path):
    given = workspace_id(tmp_path)
    for path in tmp_path.glob(f"{database.FILE}*"):
        path.unlink()
    assert workspace_id(tmp_path) == given


def test_the_database_decides_where_another_one_was_put_in_its_place(tmp_path):
    roots = [tmp_path / name for name in "ab"]
    first, second = (workspace_id(root) for root in roots)
    for path in roots[0].glob(f"{database.FILE}*"):
        path.replace(roots[1] / path.name)
    assert workspace_id(roots[1]) == first != second
    for path in roots[1].glob(f"{database.FILE}*"):
        path.unlink()
    assert workspace_id(roots[1]) == first
