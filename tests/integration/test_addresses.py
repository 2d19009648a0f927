"""Sources on S3, as moto's server speaks it: a partitioned folder, a pattern, what is new, and what is wrong."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from deltalake import write_deltalake
from PIL import Image

from models.errors import StoreError
from models.pipeline.steps import BY_NAME
from models.sources.read import read_source
from models.sources.remote_files import listed
from models.sources.schemes import scheme_of
from models.sources.source import LastIngest, Source
from tasks.host.workspace import Project
from tasks.loop.step_cache import StepCache
from tasks.tools import sources
from tests.conftest import MakeProject
from tests.s3 import BUCKET, s3


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with s3() as environ:
        yield environ


@pytest.fixture
def store(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    for city, first in (("Oslo", 0), ("Bern", 100)):
        content = io.BytesIO()
        pq.write_table(pa.table({"x": range(first, first + 100), "y": [1.0] * 100}), content)
        client.put_object(Bucket=BUCKET, Key=f"trips/city={city}/a.parquet", Body=content.getvalue())
    client.put_object(Bucket=BUCKET, Key="trips/_SUCCESS", Body=b"")
    return client


@pytest.fixture
def trips(store: Any, make_project: MakeProject) -> Project:
    del store
    project = make_project("trips")
    project.spec_path.write_text(f"name: trips\ndata: {{source: 's3://{BUCKET}/trips', target: y, task: regression}}\n")
    return project


def test_a_partitioned_folder_is_a_table_and_only_what_is_new_is_asked_for(trips: Project, store: Any) -> None:
    spec = trips.spec()
    cache = trips.workspace.cache / "sources"
    table = sources.ingest(spec, trips.folder, cache)
    assert (table.num_rows, table.column_names) == (200, ["x", "y", "city"])
    parts = StepCache(trips, spec).parts(BY_NAME["ingest"], {})
    versions = parts[f"address:{spec.data.source}"]
    assert [*versions] == ["city=Bern/a.parquet", "city=Oslo/a.parquet"]
    source, scheme = Source(spec.data.source, trips.folder), scheme_of(spec.data.source)
    before = LastIngest("key", "digest", parts, {})
    hashes = StepCache(trips, spec).hashes
    assert scheme.growth(source, before, hashes, 0.0) is None
    store.put_object(Bucket=BUCKET, Key="trips/city=Rome/new.parquet", Body=b"PAR1")
    arrival = scheme.growth(source, before, hashes, 0.0)
    store.delete_object(Bucket=BUCKET, Key="trips/city=Rome/new.parquet")
    assert arrival is not None
    assert arrival.text == f"s3://{BUCKET}/trips: city=Rome/new.parquet"


def test_a_pattern_names_files_of_several_folders(store: Any) -> None:
    del store
    assert [file.name for file in listed(f"s3://{BUCKET}/trips/city=*/a.parquet")] == [
        "city=Bern/a.parquet",
        "city=Oslo/a.parquet",
    ]


def test_a_delta_table_is_its_newest_version(store: Any, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "trips", pa.table({"x": [1, 2]}))
    write_deltalake(tmp_path / "trips", pa.table({"x": [3]}), mode="overwrite")
    for file in (tmp_path / "trips").rglob("*"):
        if file.is_file():
            store.upload_file(str(file), BUCKET, f"delta/{file.relative_to(tmp_path / 'trips')}")
    assert read_source(sources.fetch(f"s3://{BUCKET}/delta", tmp_path / "cache")).to_pylist() == [{"x": 3}]


def test_names_with_spaces_and_quotes_are_names(store: Any, tmp_path: Path) -> None:
    store.put_object(Bucket=BUCKET, Key='my trips/it\'s "here".csv', Body=b"x,y\n1,2\n")
    address = f's3://{BUCKET}/my trips/it\'s "here".csv'
    assert read_source(sources.fetch(address, tmp_path)).to_pylist() == [{"x": 1, "y": 2}]


def test_pictures_and_the_table_that_names_them_lie_under_one_address(trips: Project, store: Any) -> None:
    content = io.BytesIO()
    Image.new("L", (9, 9)).save(content, "PNG")
    for number in range(12):
        store.put_object(Bucket=BUCKET, Key=f"pets/files/{number}.png", Body=content.getvalue())
    labels = "photo,kind\n" + "".join(f"files/{number}.png,{number % 2}\n" for number in range(12))
    store.put_object(Bucket=BUCKET, Key="pets/labels.csv", Body=labels.encode())
    trips.spec_path.write_text(
        f"name: trips\ndata: {{source: 's3://{BUCKET}/pets', target: kind, kind: image, image: {{column: photo, "
        "height: 4, width: 4, resize: crop}}\n"
    )
    notes: list[str] = []
    table = sources.ingest(trips.spec(), trips.folder, trips.workspace.cache / "sources", notes.append)
    assert {len(value) for value in table.column("photo").to_pylist()} == {16}
    assert notes == [
        "6 pictures equal another that has another target, such as files/0.png and files/1.png; files/0.png and "
        "files/3.png: keep the right one"
    ]


def test_what_is_wrong_is_one_line_with_its_cure(
    store: Any, server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del store
    for address in (f"s3://{BUCKET}/gone.csv", "s3://nowhere/a.csv", "s3://nowhere/folder"):
        with pytest.raises(StoreError, match="there is no such file, folder or bucket: correct the address"):
            listed(address)
    strict = f"{server['AWS_ENDPOINT_URL']}/moto-api/reset-auth"
    requests.post(strict, data=b"0", timeout=10)  # from now on moto looks at keys
    try:
        with pytest.raises(StoreError, match="its credentials are missing, wrong or expired: set AWS_ACCESS_KEY_ID"):
            listed(f"s3://{BUCKET}/trips")
    finally:
        requests.post(strict, data=b"inf", timeout=10)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StoreError, match="its credentials are missing, wrong or expired"):
        listed(f"s3://{BUCKET}/trips")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ada")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "lovelace")
    with pytest.raises(StoreError, match="it cannot be reached") as away:
        listed(f"s3://{BUCKET}/trips")
    assert "lovelace" not in str(away.value)
