"""What packages outside add to registries, and what they cannot do to them."""

import sys
import warnings
from types import ModuleType

import pytest

from trainplan.costmodel.plugins import entry_points, plugins
from trainplan.costmodel.plugins.plugins import Installed, Plugin, PluginWarning, Registry

OURS = {"one": 1, "two": 2}


@pytest.fixture
def install(monkeypatch):
    """Let plug-ins be installed: package -> their launchers."""
    values = ModuleType("values_of_a_plug_in")
    values.THREE, values.TEXT = 3, "three"
    monkeypatch.setitem(sys.modules, values.__name__, values)

    def of(**launchers):
        found = [
            Installed(Plugin(launchers=names), package, "1.0", package)
            for package, names in launchers.items()
        ]
        monkeypatch.setattr(plugins, "installed", lambda: tuple(found))
        return Registry("launchers", OURS, int)

    return of


def at(name):
    return f"values_of_a_plug_in:{name}"


def test_a_name_of_ours_is_found_without_looking_for_plug_ins(monkeypatch):
    monkeypatch.setattr(plugins, "installed", lambda: pytest.fail("looked"))
    registry = Registry("launchers", OURS, int)
    assert registry["one"] == 1
    assert "two" in registry


def test_names_of_plug_ins_stand_behind_ours_with_their_package(install):
    registry = install(flux={"three": at("THREE")})
    assert dict(registry) == {"one": 1, "two": 2, "three": 3}
    assert registry["three"] == 3
    assert len(registry) == 3
    assert registry.plugged() == {"three": "plug-in flux 1.0"}


def test_a_name_of_nobody_is_missing(install):
    registry = install(flux={"three": at("THREE")})
    assert "four" not in registry
    with pytest.raises(KeyError, match="four"):
        registry["four"]


@pytest.mark.parametrize(
    ("name", "reference", "reason"),
    [
        ("one", at("THREE"), "trainplan itself has that name: rename it"),
        ("three", "no_such_module:X", "No module named 'no_such_module'"),
        ("three", at("MISSING"), "has no attribute 'MISSING'"),
        ("three", at("TEXT"), "values_of_a_plug_in:TEXT is no builtins.int"),
    ],
)
def test_what_is_wrong_is_left_out_with_a_line_that_names_the_package(
    install, name, reference, reason
):
    registry = install(flux={name: reference, "four": at("THREE")})
    with pytest.warns(PluginWarning) as written:
        assert dict(registry) == OURS | {"four": 3}
    (line,) = [str(one.message) for one in written]
    assert line.startswith(f"plug-in flux 1.0: launchers.{name} is left out: ")
    assert reason in line
    assert "\n" not in line


def test_an_entry_that_calls_itself_otherwise_is_left_out(install, monkeypatch):
    named = ModuleType("named_by_a_plug_in")
    named.THREE = ModuleType("third")
    named.THREE.name = "third"
    monkeypatch.setitem(sys.modules, named.__name__, named)
    install(flux={"three": "named_by_a_plug_in:THREE"})
    registry = Registry("launchers", {}, ModuleType, called="name")
    with pytest.warns(PluginWarning, match="calls itself 'third': give it the same name"):
        assert dict(registry) == {}


def test_of_two_plug_ins_with_one_name_the_second_is_left_out(install):
    registry = install(flux={"three": at("THREE")}, other={"three": at("TEXT")})
    with pytest.warns(
        PluginWarning, match=r"plug-in other 1\.0: .*plug-in flux 1\.0 has that name"
    ):
        assert registry["three"] == 3


def test_a_plug_in_that_asks_while_it_is_imported_sees_ours(install, monkeypatch):
    wanted = ModuleType("asks_while_imported")
    monkeypatch.setitem(sys.modules, wanted.__name__, wanted)
    registry = install(flux={"three": "asks_while_imported:THREE"})
    wanted.__getattr__ = lambda name: len([*registry])
    assert registry["three"] == len(OURS)


@pytest.mark.parametrize("name", ["", "a b", "--x", "UPPER", "../x"])
def test_a_name_that_a_shell_would_not_take_is_refused(name):
    with pytest.raises(ValueError, match="launchers"):
        Plugin(launchers={name: "a:b"})


def record(folder, package, text, version="1.0"):
    """Folder of an installation as pip writes it."""
    place = folder / f"{package}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (place / "entry_points.txt").write_text(text)
    return place


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Two folders in the stead of all that is installed, and caches that are put back."""
    folders = [tmp_path / "first", tmp_path / "second"]
    others = [one for one in sys.path if "-packages" not in one]
    monkeypatch.setattr(sys, "path", [*map(str, folders), "no/such/folder", *others])
    for cached in (entry_points.declaring, plugins.installed):
        cached.cache_clear()
    yield folders
    for cached in (entry_points.declaring, plugins.installed):
        cached.cache_clear()


def test_only_installations_with_an_entry_point_of_ours_are_loaded(path, monkeypatch):
    ours = record(path[0], "flux", "[trainplan.plugins]\nflux = plug_in_by_test:PLUGIN\n")
    record(path[0], "other", "[console_scripts]\nother = other:main\n")
    (path[1] / "torn-1.0.dist-info").mkdir(parents=True)
    module = ModuleType("plug_in_by_test")
    module.PLUGIN = Plugin(launchers={"flux": "x:Y"})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert entry_points.declaring() == (str(ours),)
    (found,) = plugins.installed()
    assert (found.package, found.version, found.module) == ("flux", "1.0", "plug_in_by_test")
    assert plugins.declared("launchers") == ("flux",)


def test_of_a_package_that_is_there_twice_the_first_on_the_path_counts(path, monkeypatch):
    text = "[trainplan.plugins]\nflux = plug_in_by_test:PLUGIN\n"
    record(path[0], "flux", text, "2.0")
    record(path[1], "flux", text, "1.0")
    module = ModuleType("plug_in_by_test")
    module.PLUGIN = Plugin()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert [one.version for one in plugins.installed()] == ["2.0"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("PLUGIN = 3", "is no trainplan.costmodel.plugins.plugins.Plugin"),
        (
            "from trainplan.costmodel.plugins.plugins import Plugin\nPLUGIN = Plugin(gpu='x')",
            "unexpected keyword argument 'gpu'",
        ),
    ],
)
def test_a_plug_in_that_does_not_load_is_left_out_and_others_stay(path, body, reason, monkeypatch):
    record(path[0], "bad", "[trainplan.plugins]\nbad = bad_plug_in:PLUGIN\n")
    (path[0] / "bad_plug_in.py").write_text(body)
    record(path[0], "good", "[trainplan.plugins]\ngood = plug_in_by_test:PLUGIN\n")
    module = ModuleType("plug_in_by_test")
    module.PLUGIN = Plugin()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.warns(PluginWarning, match=r"plug-in bad 1\.0: all of it is left out") as written:
        assert [one.package for one in plugins.installed()] == ["good"]
    assert reason in str(written[0].message)
    sys.modules.pop("bad_plug_in", None)


def test_nothing_is_said_where_no_plug_in_is_installed(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plugins.installed() == ()
