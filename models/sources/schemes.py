"""The sorts of sources that `data.source` may name. A further one is a row here, and a module with its functions."""

from __future__ import annotations

from models.project_spec.references import is_own_code
from models.sources import address, local, own, package, query, remote
from models.sources.source import Named, SourceRow

SCHEMES = (
    SourceRow(
        name="query",
        form=query.FORM,
        owns=query.is_query,
        check=query.check,
        read=query.read,
        identity=query.identity,
        growth=query.growth,
    ),
    SourceRow(
        name="package",
        form=package.EXAMPLE,
        owns=package.is_package,
        read=package.read,
    ),
    SourceRow(
        name="address",
        form=address.FORM,
        owns=address.is_address,
        local=address.local,
        read=remote.read,
        identity=remote.identity,
        growth=remote.growth,
    ),
    SourceRow(
        name="own code",
        form="./file.py:load, ./file.py:SOURCE, or package.module:name",
        owns=is_own_code,
        local=own.local,
        header=own.header,
        read=own.read,
        identity=own.identity,
        arrived=own.arrived,
        growth=own.growth,
        is_read_again=own.is_read_again,
    ),
    SourceRow(
        name="file or folder",
        form="a path, relative to the folder of the spec",
        owns=lambda text: True,
        local=local.local_path,
        check=local.check,
        header=local.header,
        read=local.read,
        identity=local.identity,
        growth=local.growth,
    ),
)


def scheme_of(source: Named) -> SourceRow:
    """Return the row of what `data.source` names: the first that owns it, and a path last."""
    return next(row for row in SCHEMES if row.owns(source))
