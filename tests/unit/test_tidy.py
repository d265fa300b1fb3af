"""What a reviewer should not have to check: the rules of the house that a program can see."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "homeport"
GENERATED = frozenset({PACKAGE / "wire" / "v1", PACKAGE / "wire" / "orchion" / "v1"})

SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if not GENERATED & {*path.parents})
CORE = sorted((PACKAGE / "core").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

FUNCTION_LINES_MAX = 70
IMPURE_MODULES = frozenset(
    [
        "aiohttp",
        "anyio",
        "asyncio",
        "glob",
        "http",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "queue",
        "random",
        "requests",
        "secrets",
        "select",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
    ]
)
IMPURE_CALLS = frozenset({"datetime.now", "datetime.utcnow", "date.today", "open", "input", "print"})
NAMES_THAT_SAY_NOTHING = frozenset({"utils", "util", "helpers", "helper", "manager", "common", "base", "misc"})
ENTRY_POINTS = frozenset(
    {
        "homeport.cli.main",
        "homeport.cli.__main__",
        "homeport.central.push_check",  # a hook of git
        "homeport.adapters.store.migrations.env",
        "homeport.adapters.runtime.helm.add_variables",
        "homeport.adapters.runtime.podman.run_compose",
    }
)
"""Modules that are started by name and imported by nobody."""
LATE = frozenset({"late_service", "load_late"})
"""What `capability/late.py` offers: the first argument is a module."""
MACHINE_PATH = re.compile(r"(?<![\w.])/(work|root|home/\w+|Users)/\w")
DIALECT = re.compile(
    r"\b(told|whoever|somebody|nobody|anew|looked at|to be had|for good|thereof|hereby|goes on)\b"
    r"|\b(go on|went on|in vain|whatever the case|all the same|(was|is) there already|lets? go of)\b"
    r"|(?<!there )\b(is|are) no (?!longer\b|more\b|such\b|\w+ (in|for|with|yet)\b)[a-z]+",
    re.IGNORECASE,
)
"""Words of a private dialect. Errors, logs and help texts use those that engineers search for."""
LEFTOVERS = re.compile(r"\b(FIX" + r"ME|TO" + r"DO|X" + r"XX|HA" + r"CK)\b")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def shown(path: Path, line: int = 0) -> str:
    return f"{path.relative_to(ROOT)}:{line}" if line else str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def test_the_core_has_no_clock_disk_socket_chance_or_async() -> None:
    found = []
    for path in CORE:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                found.append(f"{shown(path, node.lineno)} is async")
            found += [
                f"{shown(path)} imports {name}"
                for name in imported_modules(node)
                if name.split(".")[0] in IMPURE_MODULES
            ]
            if isinstance(node, ast.Call) and ast.unparse(node.func) in IMPURE_CALLS:
                found.append(f"{shown(path, node.lineno)} calls {ast.unparse(node.func)}")
    assert not found


def test_who_expects_bad_json_expects_it_nested_without_end() -> None:
    """That is a RecursionError, which is not a ValueError: it passed every handler, and ended roles at each start."""
    found = []
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Try) and any("json.loads(" in ast.unparse(each) for each in node.body):
                caught = " ".join(ast.unparse(each.type) for each in node.handlers if each.type is not None)
                if re.search(r"\bValueError\b", caught) and not re.search(r"\b(RecursionError|Exception)\b", caught):
                    found.append(shown(path, node.lineno))
    assert not found


def test_a_pattern_of_a_whole_text_is_matched_against_all_of_it() -> None:
    """`$` also matches before a line break at the end: "n1\\n" was a node's id, and a site's name."""
    found = []
    for path in SOURCES:
        calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
        whole = {"SITE_NAME_PATTERN", "NODE_ID_PATTERN", "DEPLOYMENT_NAME_PATTERN", "pattern"}
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                text = ast.unparse(node.value)
                if re.match(r"re\.compile\(.*(_PATTERN|\$'|\$\")\)$", text):
                    (name,) = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
                    whole.add(ast.unparse(name))
        for call in calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "match":
                of = call.args[0] if ast.unparse(call.func.value) == "re" else call.func.value
                if ast.unparse(of) in whole:
                    found.append(f"{shown(path, call.lineno)} {ast.unparse(call)}")
    assert not found


def test_functions_fit_a_screen() -> None:
    """A migration may be longer: it is a list of tables, and never changes again."""
    assert not [
        f"{shown(path, node.lineno)} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in SOURCES
        if "migrations" not in path.parts
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]


def test_every_module_opens_with_its_idea() -> None:
    everything = [*SOURCES, *TESTS]
    bare = [shown(path) for path in everything if parsed(path).body and not ast.get_docstring(parsed(path))]
    assert bare == []


def test_nothing_was_left_for_later_in_the_code() -> None:
    found = []
    for path in [*SOURCES, *TESTS]:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if LEFTOVERS.search(line):
                found.append(f"{shown(path, number)} {line.strip()}")
    assert not found


def test_no_text_names_somebodys_machine() -> None:
    folders = ("src", "tests", "docs", "scripts", "examples")
    texts = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix != ".pyc" and path.is_file()
    ]
    found = [
        shown(path)
        for path in [*texts, *ROOT.glob("*.md")]
        if MACHINE_PATH.search(path.read_text("utf-8", "replace"))
    ]
    assert found == []


def test_no_event_loop_outlives_the_tests_of_a_file() -> None:
    """An async fixture of a session keeps its loop in the worker, and `anyio.run` of a later test is refused."""
    found = [
        shown(path, node.lineno)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.AsyncFunctionDef)
        and any(ast.unparse(each).startswith("pytest.fixture(scope='session'") for each in node.decorator_list)
    ]
    assert not found


def test_names_say_something() -> None:
    parts = {path: {path.stem, *path.relative_to(ROOT).parts} for path in SOURCES}
    assert not [shown(path) for path, each in parts.items() if NAMES_THAT_SAY_NOTHING & each]


def test_messages_are_in_plain_english() -> None:
    found = []
    for path in SOURCES:
        tree = parsed(path)
        remarks = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in remarks:
                said = re.sub(r"there (is|are) no\b", "", node.value, flags=re.IGNORECASE)
                if " " in said.strip() and (word := DIALECT.search(said)):
                    found.append(f"{shown(path, node.lineno)} {word.group()}: {node.value[:80]}")
    assert not found


def test_a_public_class_has_its_name_alone() -> None:
    """A name that is defined twice is found twice; what it is of belongs into it: `GitAddress`, `ListenAddress`."""
    found: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(shown(path, node.lineno))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_our_own_package_is_not_imported_inside_functions() -> None:
    """The command line may: it loads what a command needs when that command is called."""
    assert not [
        f"{shown(path, function.lineno)} {function.name} imports {name}"
        for path in SOURCES
        if (PACKAGE / "cli") not in path.parents
        for function in ast.walk(parsed(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        for name in imported_modules(node)
        if name.startswith("homeport")
    ]


def test_no_module_is_imported_by_nobody() -> None:
    """Migrations are found by their place; a fake is for those who test against its port."""
    used = {name for path in SOURCES for node in ast.walk(parsed(path)) for name in imported_modules(node)}
    used |= {target.partition(":")[0] for target in lazily_loaded()} | {*late_services()}
    modules = {module_of(path) for path in SOURCES if parsed(path).body and path.stem != "__init__"}
    revisions = {name for name in modules if ".migrations.versions." in name or name.endswith(".fake")}
    assert sorted(modules - used - ENTRY_POINTS - revisions) == []


def imported_modules(node: ast.AST) -> Iterator[str]:
    """`from homeport.core import model` may mean a module or a name in one; both are given."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def late_services() -> Iterator[str]:
    """Modules that capabilities name, gRPC services above all."""
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LATE:
                yield from (str(each.value) for each in node.args[:1] if isinstance(each, ast.Constant))


def lazily_loaded() -> Iterator[str]:
    for node in ast.walk(parsed(PACKAGE / "cli" / "main.py")):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("homeport.cli."):
            yield node.value
