from models.serving.registry_comparison import Intent, Projection
from tasks.host import database
from tasks.state import registered_models
from tasks.state.registered_models import projection_of


def test_what_is_known_of_a_model_is_read_as_it_was_saved(tmp_path):
    assert projection_of(tmp_path, "flights") == Projection()
    model = Projection("home", "4", 3, "2", "3:abc", (Intent("2", 9.0),), 8.0, "MLflow is away")
    with database.writing(tmp_path) as connection:
        registered_models.save(connection, "flights", Projection("home"))
        registered_models.save(connection, "flights", model)
        assert registered_models.read(connection, "flights") == model
    assert projection_of(tmp_path, "flights") == model
    assert projection_of(tmp_path, "taxis") == Projection()
