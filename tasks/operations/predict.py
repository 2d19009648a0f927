"""Batch prediction: rows of files in, one Parquet file of predictions out, each row logged once for monitoring.

The work is split into parts. A finished part stays in `batch/<work>/` of the project's state until the output is
complete, so a killed run continues after its last part. Row ids and the mark of logged rows depend only on the file's
content and the version: the same file predicted again, alone or in a folder, has the same ids and is not logged again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from models.cores import usable_cores
from models.data.header import no_such_column
from models.errors import DataError, UsageError
from models.files import Hashes, read_json, sha256, storing, whole_file, write_json
from models.identity.hashing import SortedHashSet
from models.inference.batch import PART_ROWS, ReadOptions, csv_types, examples, logged_columns, part_of, shown_columns
from models.inference.loaded_model import LoadedModel, input_schema
from models.inference.row_ids import own_ids, row_ids
from models.pipeline.keys import code_parts, key_of
from models.project_spec.blocks import Spec
from models.project_spec.references import source_file
from models.sources.folders import PREDICTIONS, data_files, partition_of
from models.sources.picture_folders import is_picture
from models.sources.read import UNREADABLE
from models.sources.row_batches import column_names, count_rows, row_batches
from tasks.host.locks import held
from tasks.host.workspace import Project
from tasks.loop.loop import Reporter, SilentReporter
from tasks.loop.step_cache import StepCache
from tasks.mlflow.model_cache import CachedModel, cached_version
from tasks.state.predictions import prediction_log

if TYPE_CHECKING:
    from models.inference.predict import Feed

MADE_BY = b"loopline.work"
_FORMAT = 1
_SUMMARY_KEYS = ("rows", "version", "work")


@dataclass(frozen=True)
class PredictionUnit:
    """Files that are predicted as one table: one file, or all files of a series; `key` comes from their content."""

    files: tuple[Path, ...]
    key: str

    @property
    def display_name(self) -> str:
        """The unit's name in error messages."""
        return str(self.files[0]) if len(self.files) == 1 else f"{self.files[0].parent} ({len(self.files)} files)"


@dataclass
class PredictionJob:
    """A batch prediction: its units, the model version, the state folder for its parts, and the folder that is read."""

    project: Project
    spec: Spec
    version: CachedModel
    units: list[PredictionUnit]
    id_column: str | None
    state: Path
    source_folder: Path | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The job's key, equal for the same rows and version."""
        return key_of({"units": [unit.key for unit in self.units]})

    @property
    def folder(self) -> Path:
        """The folder of finished parts until the output is complete."""
        return self.state / "batch" / self.key[:16]

    def part(self, number: int) -> Path:
        """Return the file of one finished part."""
        return self.folder / f"{number:08d}.parquet"


@dataclass(frozen=True)
class PredictionPart:
    """A part of a job: its number in the job, its place in its unit, and its number of rows."""

    number: int
    unit: PredictionUnit
    place: int
    rows: int


def predict(
    project: Project,
    spec: Spec,
    source: Path,
    out: Path | None = None,
    *,
    id_column: str | None = None,
    version: str = "champion",
    reporter: Reporter | None = None,
) -> dict[str, Any]:
    """Predict every row of a file or folder.

    Args:
        project: The project whose model predicts; its state holds the prediction log.
        spec: The project's spec.
        source: CSV, Parquet, text, or a folder of such files, with the project's own raw columns.
        out: The Parquet file to write; default: beside the source, `<name>.predictions.parquet`.
        id_column: The column with the row ids; default: ids are generated.
        version: `champion`, another alias, or a version number.
        reporter: Receives the progress.

    Raises:
        DataError: The model does not accept a column or value; nothing is written or logged.
        UsageError: There is no such version, or `out` is a file that `loopline predict` did not make.
        StoreError: The version cannot be fetched, or the disk is full; finished parts stay.
        UserCodeError: The spec's own feature function failed.

    Returns:
        `rows`, `version`, `work` (the job's key), `out`, `logged` (rows added to the prediction log by this call),
        `seconds`, `notes`.
    """
    report, began = reporter or SilentReporter(), time.perf_counter()
    out = (out or source.with_name(f"{source.name.split('.')[0]}{PREDICTIONS}")).absolute()
    _check_out(out, source)
    files = _files(spec, source)
    cached = cached_version(project.workspace, spec.name, version)
    work = _work(project, spec, cached, files, id_column, source if source.is_dir() else None)
    busy = f"{source}: another process predicts it at this moment: wait for it, or end it"
    with storing(work.folder), held(work.folder / ".lock", lambda: busy):
        summary = _done_before(work, out)
        report.step("predict", "done" if summary else "run")
        summary = summary or _carry_out(work, out, report)
    seconds = round(time.perf_counter() - began, 3)
    if summary.pop("new"):
        report.step("predict", "ok", f"{summary['rows']:,} rows in {seconds:.1f} s")
    notes = [*([cached.note] if cached.note else []), *work.notes]
    return {**summary, "out": str(out), "seconds": seconds, "notes": notes}


def predict_unlogged(
    project: Project, spec: Spec, version: CachedModel, model: LoadedModel, source: Path
) -> tuple[pa.Table, list[str]]:
    """Predict every row of a file or folder in memory; nothing is stored or logged, so the rows get no ids.

    Args:
        project: The project whose model predicts.
        spec: The project's spec.
        version: The version.
        model: The version, loaded.
        source: As of `predict`.

    Returns:
        The columns for the caller, without ids, and notes for a person.

    Raises:
        DataError: The model does not accept a column or value.
        UserCodeError: The spec's own feature function failed.
    """
    units, folder = [PredictionUnit(tuple(_files(spec, source)), "")], source if source.is_dir() else None
    work = PredictionJob(project, spec, version, units, None, project.state(spec.name), folder)
    reading, now, tables = _reading(work, model.preparation), datetime.now(UTC), []
    for _, _, _, rows, feed in _examples(work, reading):
        table = part_of(model, rows, feed, pa.nulls(rows.num_rows, pa.string()), now, spec.data)
        tables.append(table.select(shown_columns(table.schema)).drop_columns("id").replace_schema_metadata(None))
    if not tables:
        raise _no_rows(work)
    return pa.concat_tables(tables), reading.notes


def _files(spec: Spec, source: Path) -> list[Path]:
    return data_files(source, is_text=spec.data.kind == "text")


def _no_rows(work: PredictionJob) -> DataError:
    return DataError(f"{work.units[0].display_name}: no rows to predict: expected some under the header")


def _work(
    project: Project, spec: Spec, cached: CachedModel, files: list[Path], id_column: str | None, folder: Path | None
) -> PredictionJob:
    """Return the job with its units; of files with the same content and partition only the first is predicted."""
    hashes = Hashes(project.workspace.cache / "hashes.json")
    make = spec.data.features.make
    code = source_file(make, project.folder) if make else None
    same = {
        "format": _FORMAT,
        "version": cached.number,
        "model": cached.hashes,
        "id": id_column,
        "make": [make, {**code_parts((), [code]), **StepCache(project, spec).read_since("prepare")} if code else {}],
    }
    is_one = spec.data.kind == "series" or is_picture(files[0])
    groups = [tuple(files)] if is_one else [(path,) for path in files]
    units: dict[str, PredictionUnit] = {}
    work = PredictionJob(project, spec, cached, [], id_column, project.state(spec.name), folder)
    for group in groups:
        partitions = [partition_of(path, folder) for path in group] if folder else []
        named: dict[str, Any] = {"partitions": partitions} if any(partitions) else {}
        if is_picture(group[0]):
            named["names"] = [str(path.relative_to(folder or path.parent)) for path in group]
        unit = PredictionUnit(group, key_of({**same, **named, "files": [hashes.of(path) for path in group]}))
        earlier = units.setdefault(unit.key, unit)
        if earlier is not unit:
            work.notes.append(
                f"{unit.display_name} has the same content as {earlier.display_name}: it was predicted once"
            )
    hashes.save()
    work.units = list(units.values())
    return work


def _done_before(work: PredictionJob, out: Path) -> dict[str, Any]:
    """Return the summary of an earlier run that wrote this output; empty if the output is missing or changed."""
    note = read_json(work.folder / "done.json")
    is_complete = bool(note) and out.is_file() and sha256(out) == note["sha256"]
    return {**{name: note[name] for name in _SUMMARY_KEYS}, "logged": 0, "new": False} if is_complete else {}


def _carry_out(work: PredictionJob, out: Path, report: Reporter) -> dict[str, Any]:
    parts = _make_parts(work, report)
    logged = _log(work, parts)
    _assemble(work, parts, out)
    rows = sum(part.rows for part in parts)
    document = dict(zip(_SUMMARY_KEYS, (rows, work.version.number, work.key), strict=True))
    write_json(work.folder / "done.json", {**document, "sha256": sha256(out)})
    for part in parts:
        work.part(part.number).unlink()
    return {**document, "logged": logged, "new": True}


def _make_parts(work: PredictionJob, report: Reporter) -> list[PredictionPart]:
    """Return all parts; existing part files are not made again."""
    version = work.version
    model = LoadedModel(work.spec.name, version.number, version.folder, threads=usable_cores())
    reading = _reading(work, model.preparation)
    total = sum(count_rows(path) for unit in work.units for path in unit.files)
    parts: list[PredictionPart] = []
    seen, num_rows = SortedHashSet(), 0
    for unit, place, before, rows, feed in _examples(work, reading):
        if place == 0:
            pictures = _paths_of_pictures(work, unit)
        named = rows if pictures is None else pictures.slice(before, rows.num_rows)
        ids = _ids(work, unit, named, before, seen)
        part = PredictionPart(len(parts), unit, place, rows.num_rows)
        if not work.part(part.number).exists():
            _write_part(work, part, part_of(model, rows, feed, ids, datetime.now(UTC), work.spec.data))
        parts.append(part)
        num_rows += part.rows
        report.progress("predict", num_rows, max(total, num_rows), "rows")
    work.notes += reading.notes
    if not parts:
        raise _no_rows(work)
    return parts


def _reading(work: PredictionJob, preparation: Any) -> ReadOptions:
    data, raw = work.spec.data, work.project.raw
    is_made = data.features.make is not None
    types = csv_types(preparation.column_inputs, pq.read_schema(raw) if raw.is_file() else None, is_made=is_made)
    types.pop(work.id_column or "", None)  # ids are read as text, even if they look like numbers
    reading = ReadOptions(data, preparation, work.project.folder, types, folder=work.source_folder)
    for path in (path for unit in work.units for path in unit.files):
        names = column_names(path, work.source_folder)
        if work.id_column and work.id_column not in names:
            raise UsageError(f"{path}: --id {work.id_column}: {no_such_column(work.id_column, names)}")
        if not data.features.make:  # else the columns are checked after the feature function has run
            input_schema(preparation).check_header(names, str(path))
        for target in data.targets if preparation.kind in ("table", "image") else ():
            if target in names:
                reading.note(f"column {target!r} is the target: not read (`loopline label` takes it)")
    return reading


def _examples(work: PredictionJob, reading: ReadOptions) -> Iterator[tuple[PredictionUnit, int, int, pa.Table, Feed]]:
    """Yield for each part: its unit, its place there, the number of rows before it, its rows, and the graph's feed."""
    for unit in work.units:
        before = 0
        for place, (rows, feed) in enumerate(examples(reading, unit.files, unit.display_name)):
            yield unit, place, before, rows, feed
            before += rows.num_rows


def _paths_of_pictures(work: PredictionJob, unit: PredictionUnit) -> pa.Table | None:
    """Return the rows with the paths that name their pictures, if these are the ids: examples hold pixels instead.

    Raises:
        UsageError: They are no paths.
    """
    image = work.spec.data.image
    if image is None or work.id_column is None or work.id_column != image.column:
        return None
    rows = pa.concat_tables(row_batches(unit.files, {}, PART_ROWS, work.source_folder))
    if not pa.types.is_string(rows.column(work.id_column).type):
        raise UsageError(f"{unit.display_name}: --id {work.id_column}: holds pictures, expected a column of ids")
    return rows


def _ids(work: PredictionJob, unit: PredictionUnit, rows: pa.Table, before: int, seen: Any) -> Any:
    if work.id_column:
        return own_ids(rows.column(work.id_column), seen, before + 1, f"{unit.display_name}", work.id_column)
    return row_ids(unit.key, _began_ms(work, unit), before, rows.num_rows)


def _began_ms(work: PredictionJob, unit: PredictionUnit) -> int:
    """Return the time of the unit's first begin, in ms; generated ids contain it, so it is stored permanently."""
    path = work.state / "batch" / "begun" / f"{unit.key[:32]}.json"
    note = read_json(path)
    if not note:
        note = {"began_ms": time.time_ns() // 1_000_000}
        write_json(path, note)
    return int(note["began_ms"])


def _write_part(work: PredictionJob, part: PredictionPart, table: pa.Table) -> None:
    with whole_file(work.part(part.number)) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _log(work: PredictionJob, parts: list[PredictionPart]) -> int:
    """Append every part to the prediction log unless it is there already; return the number of new rows."""
    log, added = prediction_log(work.state), 0
    for part in parts:
        key = f"{part.unit.key}:{part.place}"
        if not log.has(key):
            path = work.part(part.number)
            columns = logged_columns(pq.read_schema(path), work.spec.serve.log.redact)
            log.append(pq.read_table(path, columns=columns), key)
            added += part.rows
    return added


def _assemble(work: PredictionJob, parts: list[PredictionPart], out: Path) -> None:
    """Write the output from its parts atomically."""

    def shown(part: PredictionPart) -> pa.Table:
        path = work.part(part.number)
        table = pq.read_table(path, columns=shown_columns(pq.read_schema(path)))
        return table.replace_schema_metadata({MADE_BY: work.key.encode()})

    with whole_file(out) as temporary, pq.ParquetWriter(temporary, shown(parts[0]).schema, compression="zstd") as file:
        for part in parts:
            file.write_table(shown(part))


def _check_out(out: Path, source: Path) -> None:
    if out.suffix != ".parquet":
        raise UsageError(f"--out {out}: got {out.suffix or 'no suffix'}, expected a .parquet file")
    if source.is_dir() and out.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"--out {out}: it lies in the folder that is read: name a file elsewhere")
    if not out.exists():
        return
    try:
        ours = MADE_BY in (pq.read_schema(out).metadata or {})
    except UNREADABLE:
        ours = False
    if not ours:
        raise UsageError(f"--out {out}: there is a file that `loopline predict` did not make: name another")
