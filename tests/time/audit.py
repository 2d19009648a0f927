"""A table in which the state database itself notes each write of a loop, with the epoch that its lease then had."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import text

from tasks.host import database
from tasks.host.workspace import Workspace
from tests.time.acts import PROJECT

_MARKS = {
    "loops": ("step", "reason"),
    "step_records": ("content ->> 'digest'",),
    "outbox": ("content ->> 'status'",),
}
"""The columns in which the acts of `acts.py` write their mark."""
_EPOCH = f"(select epoch from leases where name = 'loop:{PROJECT}')"
_POSTGRES = """\
create function noted_{name}() returns trigger language plpgsql as
$$ begin insert into audit (mark, epoch) select new.{column}, {epoch} where new.{column} <> ''; return new; end $$;
create trigger insert_{name} after insert on {table} for each row execute function noted_{name}();
create trigger update_{name} after update on {table} for each row
when (new.{column} is distinct from old.{column}) execute function noted_{name}();
"""
_SQLITE = """\
create trigger {event}_{name} after {event} on {table} when new.{column} <> '' {changed}
begin insert into audit (mark, epoch) values (new.{column}, {epoch}); end
"""


class Write(NamedTuple):
    """A write that was noted: who wrote, and the epoch of the loop's lease in that moment."""

    mark: str
    epoch: int


def begin_audit(workspace: Workspace) -> None:
    """Have the database note from now on what is written."""
    number = "serial primary key" if database.is_shared() else "integer primary key autoincrement"
    with database.writing(workspace.state) as connection:
        connection.execute(text(f"create table audit (number {number}, mark text, epoch integer)"))
        for table, columns in _MARKS.items():
            for index, column in enumerate(columns):
                names = {"name": f"{table}_{index}", "table": table, "column": column, "epoch": _EPOCH}
                for statement in _statements(names):
                    connection.execute(text(statement))


def _statements(names: dict[str, str]) -> list[str]:
    if database.is_shared():
        return [_POSTGRES.format(**names)]
    changed = f"and new.{names['column']} is not old.{names['column']}"
    return [_SQLITE.format(event=event, changed=when, **names) for event, when in (("insert", ""), ("update", changed))]


def audited(workspace: Workspace) -> list[Write]:
    """Return what was noted, in the order of the writes."""
    with database.reading(workspace.state) as connection:
        rows = connection.execute(text("select mark, epoch from audit order by number"))
        return [Write(row.mark, row.epoch) for row in rows]
