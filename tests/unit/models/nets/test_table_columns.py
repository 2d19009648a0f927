from models.nets.table_columns import embedding_dim


def test_embeddings_grow_slowly():
    assert embedding_dim(2) == 2
    assert embedding_dim(10**6) == 50
