from tasks.host import database
from tasks.state import registered_models
from tasks.state.registered_models import RegisteredModel, registered_model


def test_what_is_known_of_a_model_is_read_as_it_was_saved(tmp_path):
    assert registered_model(tmp_path, "flights") == RegisteredModel()
    model = RegisteredModel("home", "4", 3, "2", "3:abc", [{"alias": "2", "until": 9.0}], 8.0, "MLflow is away")
    with database.writing(tmp_path) as connection:
        registered_models.save(connection, "flights", RegisteredModel("home"))
        registered_models.save(connection, "flights", model)
        assert registered_models.read(connection, "flights") == model
    assert registered_model(tmp_path, "flights") == model
    assert registered_model(tmp_path, "taxis") == RegisteredModel()
