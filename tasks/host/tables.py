"""The tables of the state database; a change needs a migration (`tasks/host/migrations/versions`)."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, Index, Integer, MetaData, Table, Text

METADATA = MetaData()

loops = Table(
    "loops",
    METADATA,
    Column("loop_id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("saved", Integer, comment="Orders the project's loops by the last change of their state."),
    Column("state", Text, comment="running, finished, failed, rejected, cancelled or killed"),
    Column("intent", Text, comment="Hash of the spec: an interrupted loop is continued only with the same."),
    Column("folder", Text, comment="The project's folder."),
    Column("process", JSON, comment="Host, pid and start time of the process that runs the loop."),
    Column("step", Text, comment="The step that runs, or at which the loop ended."),
    Column("flow_run", Text, comment="Prefect's id of the flow run."),
    Column("trigger", Text, nullable=False),
    Column("began", Float, nullable=False, comment="Unix time, seconds."),
    Column("closed", Integer, comment="Orders the project's loops by their ends."),
    Column("ended", Float, comment="Unix time, seconds."),
    Column("outcome", Text, comment="promoted, kept, rejected, failed, cancelled or unchanged"),
    Column("device_seconds", Float, nullable=False, default=0.0),
    Column("reason", Text, nullable=False, server_default="", comment="Why it failed, or its data was rejected."),
    Index("loops_by_state", "project", "saved"),
    Index("loops_by_end", "project", "closed"),
)
leases = Table(
    "leases",
    METADATA,
    Column("name", Text, primary_key=True, comment="What may be done, such as `loop:flights`."),
    Column("holder", JSON, nullable=False, comment="Host, pid and start time of the process that took it last."),
    Column("epoch", Integer, nullable=False, comment="Counts the holders."),
    Column("until", Float, comment="When it runs out, by the database's clock; empty if it was released."),
)
runners = Table(
    "runners",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("project", Text, nullable=False),
    Column("flow_run", Text, comment="Prefect's id of the flow run, once it is known."),
    Column("process", JSON, nullable=False, comment="Host, pid and start time of the process that runs the flow."),
    Column("since", Float, nullable=False, comment="Unix time, seconds."),
)
outbox = Table(
    "outbox",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("project", Text, nullable=False),
    Column("loop_id", Text, nullable=False),
    Column("content", JSON, nullable=False, comment="One operation on a run of MLflow."),
    Index("outbox_by_loop", "project", "loop_id", "number"),
    sqlite_autoincrement=True,  # a number that was delivered is not given again after its line was removed
)
deliveries = Table(
    "deliveries",
    METADATA,
    Column("loop_id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("number", Integer, nullable=False, comment="The last line of the outbox that MLflow has."),
    Column("runs", JSON, nullable=False, comment="MLflow's ids of the runs by our names."),
    Column("at", Float, nullable=False, comment="Of the last delivery. Unix time, seconds."),
)
store_sizes = Table(
    "store_sizes",
    METADATA,
    Column("store", Text, primary_key=True),
    Column("size", BigInteger, nullable=False, comment="Bytes."),
    Column("at", Float, nullable=False, comment="When it was measured. Unix time, seconds."),
)
step_records = Table(
    "step_records",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("project", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("key", Text, nullable=False, comment="Hash of all that decides the step's result."),
    Column("content", JSON, nullable=False, comment="The whole record: parts of the key, outputs, result."),
    Index("step_records_by_key", "project", "step", "key", unique=True),
    Index("step_records_by_number", "project", "step", "number"),
)
decisions = Table(
    "decisions",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("project", Text, nullable=False),
    Column("signal", Text, nullable=False, comment="Id of the signal."),
    Column("flow_run", Text, comment="Prefect's id of the flow run that decided."),
    Column("at", Float, nullable=False, comment="Unix time, seconds."),
    Column("action", Text, nullable=False, comment="retrain, ask or wait"),
    Column("until", Float, comment="When the signal is weighed again; empty if the decision is final."),
    Column("content", JSON, nullable=False, comment="The whole decision."),
    Index("decisions_by_signal", "project", "signal"),
    Index("decisions_by_flow_run", "project", "flow_run"),
)
events = Table(
    "events",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("project", Text, nullable=False),
    Column("content", JSON, nullable=False, comment="The whole event."),
    Column("state", Text, nullable=False, comment="waiting, sent or refused (by Prefect, as invalid)"),
    Column("is_open", Boolean, nullable=False, comment="A signal without a decision yet."),
    Column("sent", Float, comment="When it was last sent. Unix time, seconds."),
    Index("events_by_state", "state", "number"),
    Index("events_by_project", "is_open", "project"),
)
served_versions = Table(
    "served_versions",
    METADATA,
    Column("server", Text, primary_key=True, comment="Made up by the process that leads a project's release."),
    Column("project", Text, primary_key=True),
    Column("version", Text, primary_key=True),
    Column("release", Text, nullable=False, comment="The versions that answer there: the stable one and the canary."),
    Column("trial", Text, nullable=False, server_default="", comment="Id of the canary's trial, or of the promotion."),
    Column("answers", BigInteger, nullable=False, comment="Since this release began on the server."),
    Column("failed", BigInteger, nullable=False, comment="Of the answers: in the model itself."),
    Column("slow", BigInteger, nullable=False, comment="Of the answers: over the spec's latency."),
    Column("at", Float, nullable=False, comment="When the server was last heard of. Unix time, seconds."),
    Index("served_versions_by_release", "project", "release", "at"),
)
servers = Table(
    "servers",
    METADATA,
    Column("server", Text, primary_key=True, comment="Made up by the server for each project."),
    Column("project", Text, primary_key=True),
    Column("release", JSON(none_as_null=True), comment="The whole release; empty if another process leads it."),
    Column("began", Float, comment="When the release began there. Unix time, seconds, as of the database."),
    Column("at", Float, nullable=False, comment="When the server was last heard of. Unix time, seconds."),
)
monitoring_reports = Table(
    "monitoring_reports",
    METADATA,
    Column("project", Text, primary_key=True),
    Column("at", Float, nullable=False, comment="When it was made. Unix time, seconds."),
    Column("content", JSON, nullable=False, comment="The whole report of the latest monitoring run."),
)
workspace = Table(
    "workspace",
    METADATA,
    Column("id", Text, primary_key=True, comment="Its only row: names the workspace where several share a store."),
)
champion_moves = Table(
    "champion_moves",
    METADATA,
    Column("project", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False, comment="Counts the project's moves."),
    Column("id", Text, nullable=False, unique=True),
    Column("at", Float, nullable=False, comment="Unix time, seconds, by the database's clock."),
    Column("actor", Text, nullable=False, comment="Account and host, a server, a loop, or MLflow."),
    Column("reason", Text, nullable=False),
    Column("action", Text, nullable=False, comment="promote, rollback, removed, overruled, adopt, canary, shadow, end"),
    Column("before", Text, comment="The champion before."),
    Column("after", Text, comment="The champion from now on; empty for none."),
    Column("plan", JSON, nullable=False, comment="What is tried beside it."),
    Column("promotion", Text, nullable=False, comment="Id of the promotion by which the champion serves."),
    Column("best", Text, comment="Identity of the best champion so far; empty: as the version was registered."),
    Column("loop_id", Text, nullable=False),
)
versions = Table(
    "versions",
    METADATA,
    Column("project", Text, primary_key=True),
    Column("version", Text, primary_key=True, comment="MLflow's number."),
    Column("key", Text, nullable=False, comment="Hash of the work that it was registered for."),
    Column("run", Text, nullable=False, comment="MLflow's id of the run that made it."),
    Column("place", Text, nullable=False, comment="URI of its files."),
    Column("tags", JSON, nullable=False, comment="As it was registered or judged last; the files' hashes too."),
    Column("at", Float, nullable=False, comment="When it was registered. Unix time, seconds."),
    Column("is_removed", Boolean, nullable=False, default=False, comment="It was deleted in MLflow since."),
    Index("versions_by_key", "project", "key"),
)
registered_models = Table(
    "registered_models",
    METADATA,
    Column("project", Text, primary_key=True),
    Column("owner", Text, nullable=False, comment="Id of the workspace that may move it; empty: not asked yet."),
    Column("challenger", Text, comment="The version that was judged last and is not the champion."),
    Column("number", Integer, nullable=False, comment="The last move that MLflow has; 0: none."),
    Column("alias", Text, comment="The version to which we set MLflow's alias `champion` last."),
    Column("mark", Text, nullable=False, comment="`number:id` of a move, as we wrote it into MLflow last; or empty."),
    Column("intents", JSON, nullable=False, comment="Values of the alias that carriers are setting, and until when."),
    Column("looked", Float, comment="When MLflow was last looked at. Unix time, seconds; empty: it must be."),
    Column("trouble", Text, nullable=False, comment="Why moves are not carried to MLflow; empty: they are."),
)
