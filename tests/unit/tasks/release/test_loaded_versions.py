"""What a worker has loaded, and by which release it picks: the switch decides, whatever was prepared."""

import asyncio

import pytest

from models.files import sha256, write_json
from models.serving.releases import Canary, Release
from tasks.release import loaded_versions as module
from tasks.release.loaded_versions import LoadedVersions
from tasks.release.settings import ServerSettings
from tasks.release.shared_state import SharedReleaseState
from tests.served_models import write_served


@pytest.fixture
def settings(tmp_path):
    return ServerSettings(str(tmp_path), ("tiny",))


@pytest.fixture
def release_state(settings):
    return SharedReleaseState(settings.state("tiny") / "serving")


@pytest.fixture
def version(settings):
    """Put a version into the cache, checked."""

    def put(number, **serve):
        folder = settings.workspace.cache / "models" / "tiny" / number
        write_served(folder)
        write_json(folder / "spec.json", {"serve": serve})
        write_json(folder.with_name(f"{number}.json"), {path.name: sha256(path) for path in folder.iterdir()})
        return folder

    return put


def refreshed(loaded):
    asyncio.run(loaded.refresh())
    return loaded


def release(generation, stable, **more):
    return Release(generation=generation, stable=stable, **more)


def test_without_a_release_nothing_answers(settings):
    loaded = refreshed(LoadedVersions(settings, "tiny"))
    assert (loaded.is_ready, loaded.pick("a"), loaded.versions) == (False, None, [])


def test_what_is_prepared_answers_when_the_switch_is_turned_and_not_before(settings, release_state, version):
    for number in ("1", "2"):
        version(number)
    release_state.publish(release(1, "1"))
    loaded = refreshed(LoadedVersions(settings, "tiny"))
    assert (loaded.is_ready, loaded.pick("a").version) == (True, "1")
    release_state.prepare(release(2, "2", previous="1"))
    refreshed(loaded)
    assert release_state.reports()[0].loaded == ["1", "2"]
    assert (loaded.pick("a").version, loaded.pick("a", "2"), loaded.versions) == ("1", None, ["1"])
    prepared = loaded._held["2"]
    release_state.publish(release(2, "2", previous="1"))
    assert loaded.pick("a") is prepared, "at the very next request, and it was loaded before"
    assert (loaded.pick("a", "1").version, loaded.versions) == ("1", ["2", "1"])


def test_one_that_missed_the_preparation_loads_when_it_picks(settings, release_state, version):
    for number in ("1", "2"):
        version(number)
    release_state.publish(release(1, "1"))
    loaded = refreshed(LoadedVersions(settings, "tiny"))
    release_state.publish(release(2, "2"))
    assert loaded.pick("a").version == "2"


def test_what_no_release_names_any_more_is_let_go_of(settings, release_state, version):
    for number in ("1", "2", "3"):
        version(number)
    loaded = LoadedVersions(settings, "tiny")
    for release_of in (release(1, "1"), release(2, "2", previous="1"), release(3, "3", previous="2")):
        release_state.publish(release_of)
        refreshed(loaded)
    assert set(loaded._held) == {"2", "3"}
    assert release_state.reports()[0].loaded == ["2", "3"]


def test_one_that_was_tampered_with_is_not_loaded_and_the_controller_hears_why(settings, release_state, version):
    version("1")
    (version("2") / "model.onnx").write_bytes(b"tampered")
    release_state.publish(release(1, "1"))
    loaded = refreshed(LoadedVersions(settings, "tiny"))
    release_state.prepare(release(2, "2"))
    refreshed(loaded)
    assert "model.onnx is changed" in release_state.reports()[0].failed["2"]
    release_state.publish(release(2, "2"))
    assert loaded.pick("a").version == "1", "rather the old one than none"
    version("2")
    release_state.give_up()
    loaded._try_again()
    release_state.publish(release(3, "2"))
    assert loaded.pick("a").version == "2"


def test_a_canary_answers_its_share(settings, release_state, version):
    for number in ("1", "2"):
        version(number)
    release_state.publish(release(1, "1", canary=Canary(version="2", share=0.5)))
    loaded = refreshed(LoadedVersions(settings, "tiny"))
    assert {loaded.pick(str(key)).version for key in range(50)} == {"1", "2"}


def test_what_was_refused_is_told_without_a_swap(settings, release_state, version):
    version("1")
    swaps = []
    release_state.publish(release(1, "1"))
    loaded = LoadedVersions(settings, "tiny")
    loaded.on_swap.append(lambda found: swaps.append(found.generation))
    refreshed(loaded)
    release_state.publish(release(1, "1", refused={"2": "damaged"}))
    refreshed(loaded)
    assert (loaded.release.refused, swaps) == ({"2": "damaged"}, [1])


def test_answers_are_counted_by_the_limit_of_their_version(settings, release_state, version):
    version("1", return_on={"latency_ms": 20})
    release_state.publish(release(1, "1"))
    loaded = refreshed(LoadedVersions(settings, "tiny"))
    loaded.count("1", 0.01)
    loaded.count("1", 0.03)
    loaded.count("1", 0.0, failed=True)
    loaded._report()
    told = release_state.reports()[0].tallies["1"]
    assert (told.answers, told.slow, told.failed) == (3, 1, 1)


def test_a_report_that_cannot_be_written_is_one_line_a_minute(settings, monkeypatch, caplog):
    loaded, looks = LoadedVersions(settings, "tiny"), []

    async def full():
        looks.append(1)
        if len(looks) == 5:
            raise asyncio.CancelledError
        raise OSError(28, "No space left on device", f".report-{len(looks)}.tmp")

    monkeypatch.setattr(loaded, "refresh", full)
    monkeypatch.setattr(module, "LOOK_S", 0)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(loaded.follow())
    assert len(looks) == 5
    (record,) = caplog.records
    assert "tiny: going on with what is loaded: [Errno 28]" in record.getMessage()
    assert not record.exc_info
