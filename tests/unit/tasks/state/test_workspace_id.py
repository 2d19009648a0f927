from tasks.state.workspace_id import workspace_id


def test_a_workspace_has_an_id_that_stays_and_no_other_has(tmp_path):
    roots = [tmp_path / name for name in "ab"]
    for root in roots:
        root.mkdir()
    first, second = (workspace_id(root) for root in roots)
    assert first == workspace_id(roots[0])
    assert first != second
    assert len(first) == 32
