# SPDX-License-Identifier: Apache-2.0
"""Loader: options, errors, what it compiles, finds and explains."""

import ctypes
import gc
import json
import logging
import math
import os
import queue
import subprocess
import sys
import textwrap
from types import SimpleNamespace
from typing import get_args

import pytest

import cukiln
from conftest import BINARIES

TWICE = cukiln.Source("twice.cu", 'extern "C" __global__ void twice(float* x) { *x *= 2; }')


def module(**rest):
    return cukiln.ModuleSpec(TWICE, targets=["sm_90a"], **rest)


def test_a_text_that_c_would_cut_is_refused(loader):
    for spec in (
        cukiln.ModuleSpec("a\0b.cu"),
        cukiln.ModuleSpec("a.cu", flags=["-DA=1\0"]),
        cukiln.ModuleSpec("a.cu", include=["a\0b"]),
    ):
        with pytest.raises(cukiln.InvalidArgumentError, match="has a NUL byte"):
            loader.preload([spec], load=False)


def test_errors_have_the_codes_of_the_library():
    name = cukiln._library.library().cukiln_code_name
    codes = tuple(kind.code for kind in cukiln._errors.BY_CODE)
    assert codes == get_args(cukiln.ErrorCode)
    assert codes == tuple(name(number).decode() for number in range(1, 1 + len(codes)))


def test_an_empty_store_is_no_folder():
    with pytest.raises(cukiln.InvalidArgumentError, match='store is ""'):
        cukiln.Loader(store="")


def test_a_loader_begins_with_an_empty_store(tmp_path):
    with cukiln.Loader(store=tmp_path / "mine") as loader:
        assert loader.stats().entries == 0
    assert (tmp_path / "mine").is_dir()


def test_what_is_compiled_once_is_found_by_the_next_loader(home):
    with cukiln.Loader() as loader:
        (first,) = loader.compile(module())
        assert (first.outcome, first.target, first.name) == ("compiled", "sm_90a", "twice")
        assert [kernel.name for kernel in first.kernels] == ["twice"]
        assert first.kernels[0].registers > 0
    with cukiln.Loader() as loader:
        (second,) = loader.compile(module())
        assert (second.outcome, second.key) == ("hit", first.key)
        assert first.peak_bytes > 20 << 20 and second.peak_bytes == 0
        assert loader.cubin(first.key)[:4] == b"\x7fELF"
        assert loader.stats().hits == 1


def test_a_report_names_flags_without_effect(loader):
    (report,) = loader.compile(module(flags=["-O3", "-Xcompiler=-fPIC"]))
    assert report.dropped_flags == ("-O3", "-Xcompiler=-fPIC")
    assert report.error is None and report.not_stored is None and report.load_seconds == 0
    (report,) = loader.compile(module())
    assert report.dropped_flags == ()


def test_a_report_says_why_a_result_is_not_stored(loader, tmp_path):
    dated = cukiln.Source("k.cu", 'extern "C" __global__ void k(char* x) { *x = *__TIME__; }')
    (report,) = loader.compile(cukiln.ModuleSpec(dated, targets=["sm_90a"]))
    assert report.outcome == "compiled" and report.error is None
    assert isinstance(report.not_stored, cukiln.IncompatibleError)
    assert str(report.not_stored) == "uses __TIME__, __DATE__ or __TIMESTAMP__"
    (tmp_path / "file").touch()
    with cukiln.Loader(store=tmp_path / "file" / "store") as unusable:
        (report,) = unusable.compile(module())
    assert report.outcome == "compiled" and isinstance(report.not_stored, cukiln.IoError)
    with cukiln.Loader(memory_only=True) as disabled:
        (report,) = disabled.compile(module())
    assert isinstance(report.not_stored, cukiln.IncompatibleError)


def test_a_preload_says_where_its_time_went(loader):
    report = loader.preload([module()], load=False)
    assert 0 < report.phases.compile <= sum(report.phases) <= report.seconds < 60
    assert report.phases.load == 0
    assert loader.preload([module()], load=False).phases.compile == 0


def test_events_tell_what_happened(home):
    seen = []
    with cukiln.Loader(events=seen.append) as loader:
        (report,) = loader.compile(module())
        assert [event.kind for event in seen] == ["miss", "compile"]
        miss, compiled = seen
        assert miss == ("miss", "twice", "sm_90a", "", "not in the store", False, 0.0)
        assert compiled.key == report.key and 0 < compiled.seconds <= report.seconds < 60
        loader.compile(module())
        assert seen[2][:5] == ("hit", "twice", "sm_90a", report.key, "in the store")
        loader.seal()
        with pytest.raises(cukiln.SealedError, match=r"(?s)needed after seal.*seal\(warn=True\)"):
            loader.compile(module(flags=["-DA=1"]))
        (sealed,) = [event for event in seen if event.kind == "sealed"]
        assert sealed.failed and "flag: was none, is --define-macro=A=1" in sealed.reason


def test_a_callback_of_events_may_use_the_loader_and_raise(home, caplog):
    kinds = []

    def called(event):
        kinds.append(event.kind)
        if event.kind == "miss" and kinds.count("miss") == 1:
            assert loader.compile(module())[0].outcome == "hit"
        raise RuntimeError("the host's own trouble")

    with cukiln.Loader(events=called) as loader:
        assert loader.compile(module())[0].outcome == "compiled"
    assert kinds == ["miss", "hit", "compile"]
    assert sum("the host's own trouble" in one.getMessage() for one in caplog.records) == 3


def test_a_watch_reloads_what_was_edited(home, cuda, tmp_path):
    file = tmp_path / "twice.cu"
    file.write_text(TWICE.text)
    cuda.parameters("twice", 8)
    reloads = queue.Queue()
    with cukiln.Loader(events=lambda event: event.kind == "reload" and reloads.put(event)) as loader:
        twice = loader.get(cukiln.ModuleSpec(file, targets=["sm_90a"]))
        twice[1, 32](0)
        before = cuda.last().image
        with loader.watch():
            with pytest.raises(cukiln.InvalidArgumentError, match="watched already"):
                loader.watch()
            file.write_text("wrong")
            failed = reloads.get(timeout=120)
            assert failed.failed and "twice.cu(1): error" in failed.reason
            file.write_text(TWICE.text.replace("2", "3"))
            assert reloads.get(timeout=120)[:3] == ("reload", "twice", "sm_90a")
            twice[1, 32](0)
            assert cuda.last().image != before
        loader.watch()  # ends with the loader


def test_the_default_loader_is_watched(own_default_loader):
    watch = cukiln.watch(after_seal=True)
    watch.end()
    watch.end()


def test_a_token_cancels_its_own_call(loader):
    token = cukiln.CancelToken()
    assert not token.cancelled
    token.cancel()
    assert token.cancelled
    with pytest.raises(cukiln.TimeoutError, match="cancelled"):
        loader.compile(module(), cancel=token)
    (report,) = loader.compile(module())
    assert report.outcome == "compiled"
    (report,) = loader.compile(module(), cancel=token)  # a hit waits for nothing
    assert report.outcome == "hit"


def test_a_token_cancels_a_get(loader, cuda):
    token = cukiln.CancelToken()
    token.cancel()
    with pytest.raises(cukiln.TimeoutError, match="cancelled"):
        loader.get(module(), cancel=token)
    assert loader.get(module(), cancel=cukiln.CancelToken()).name == "twice"


def test_a_cancelled_loader_resumes(loader):
    loader.cancel()
    with pytest.raises(cukiln.TimeoutError, match="cancelled"):
        loader.compile(module())
    loader.resume()
    assert loader.compile(module())[0].outcome == "compiled"


def test_the_visible_devices_are_described(loader, cuda):
    cuda.library.fake_cuda_set_devices(2)
    cuda.library.fake_cuda_set_capability(1, 100)
    first, second = loader.devices()
    assert first == cukiln.DeviceInfo(0, "Fake GPU 0", 90, 80 << 30, 148)
    assert (second.ordinal, second.name, second.capability) == (1, "Fake GPU 1", 100)


def test_devices_without_a_driver_are_an_error(home, cuda):
    with cukiln.Loader(cuda_library="/nowhere/libcuda.so.1") as loader:
        with pytest.raises(cukiln.DriverError, match="no CUDA driver"):
            loader.devices()
        with pytest.raises(cukiln.DriverError, match=r"preload_all\(targets=\[…\], load=False\)"):
            cukiln.preload_all(loader=loader)
    cuda.fail("cuInit", 100)
    with cukiln.Loader() as loader:
        with pytest.raises(cukiln.DriverError, match="no GPU is visible"):
            loader.devices()
        assert len(loader.devices()) == 1  # an error is not kept


def test_a_preload_is_refused_while_its_guard_captures(loader, cuda):
    streams = [77, SimpleNamespace(cuda_stream=77), SimpleNamespace(__cuda_stream__=(0, 77))]
    cuda.library.fake_cuda_set_capture(77, 1)
    for stream in streams:
        with pytest.raises(cukiln.InvalidArgumentError, match="the capture_guard stream is being"):
            loader.preload([module()], capture_guard=stream)
    with pytest.raises(cukiln.InvalidArgumentError, match="the stream is a str"):
        loader.preload([module()], capture_guard="torch")
    loader.preload([module()], capture_guard=78)
    cuda.library.fake_cuda_set_capture(77, 0)
    for stream in streams:
        assert loader.preload([module()], capture_guard=stream).failed == 0


def test_a_module_is_unloaded_by_its_key(loader, cuda):
    (report,) = loader.preload([module()]).modules
    assert loader[0] == loader["twice"]
    loader.unload(report.key)
    assert loader.find(0) is None and loader.find("twice") is None
    with pytest.raises(cukiln.NotFoundError, match="no module with the key"):
        loader.unload(report.key)
    with pytest.raises(cukiln.InvalidArgumentError):
        loader.unload("12")
    loader.preload([module()])
    assert loader[1] == loader["twice"] and loader.find(0) is None


def test_an_unloaded_module_is_loaded_again_by_get_cuda_module(loader, cuda, tmp_path):
    (tmp_path / "twice.cu").write_text(TWICE.text)
    get = lambda: cukiln.get_cuda_module(  # noqa: E731
        "twice", [tmp_path / "twice.cu"], targets=["sm_90a"], loader=loader
    )
    first = get()
    loader.unload(first._reports[0].key)
    again = get()
    assert again is not first and get() is again


def test_a_daemon_can_be_required(home):
    with pytest.raises(cukiln.InvalidArgumentError, match='expected "auto"'):
        cukiln.Loader(daemon="always")
    with cukiln.Loader(daemon="require", daemon_socket=home / "nobody") as loader:
        with pytest.raises(cukiln.Error, match="daemon"):
            loader.compile(module())
    with cukiln.Loader(daemon="off") as loader:
        assert loader.compile(module())[0].outcome == "compiled"


def test_what_is_asked_for_is_recorded(home):
    record = home / "record.json"
    record.touch()
    with cukiln.Loader(record=record) as loader:
        loader.compile(module())
    assert "twice" in record.read_text()


def test_a_miss_is_explained(loader):
    (report,) = loader.compile(module())
    assert loader.explain(module(), "sm_90a").key == report.key
    why = loader.explain(module(flags=["--use_fast_math"]), "sm_90a")
    assert not why.hit and why.nearest == report.key
    assert [d.field for d in why.differences] == ["flag"]
    assert loader.explain_keys(report.key, report.key).hit


def test_defines_headers_and_name_expressions_reach_the_compiler(loader):
    spec = cukiln.ModuleSpec(
        cukiln.Source(
            "fill.cu",
            '#include "n.h"\ntemplate <class T> __global__ void fill(T* x) { *x = N + M + ONE; }',
        ),
        headers={"n.h": "#define N 3"},
        define={"M": 4, "ONE": True},
        names=["fill<int>", "fill<float>"],
        targets=["sm_90a"],
    )
    (report,) = loader.compile(spec)
    assert {kernel.name for kernel in report.kernels} == {"fill<int>", "fill<float>"}


def test_a_spec_has_the_key_of_the_command_line(home):
    (home / "a").mkdir()
    (home / "a/which.h").write_text("")
    (home / "pre.h").write_text("#define X 5\n")
    (home / "k.cu").write_text(
        '#include <which.h>\nextern "C" __global__ void k(int* p) { *p = X + Y; }'
    )
    line = ["-DY=0", "-U", "Y", "-I", "a", "-D", "Y=2", "-include", "pre.h", "-std=c++20"]
    done = subprocess.run(
        [BINARIES / "cukiln", "--json", "compile", "k.cu", "--arch", "sm_90a", *line],
        cwd=home, capture_output=True, check=True,
    )  # fmt: skip
    (wanted,) = json.loads(done.stdout)["modules"]
    one_list = cukiln.ModuleSpec(
        home / "k.cu", flags=line, targets=["sm_90a"], working_folder=home
    )
    fields = cukiln.ModuleSpec(
        home / "k.cu",
        include=[home / "a"],
        define={"Y": 0},
        flags=["-UY", "-DY=2", "-include", "pre.h", "-std=c++20"],
        targets=["sm_90a"],
        working_folder=home,
    )
    with cukiln.Loader() as loader:
        for spec in one_list, fields:
            (report,) = loader.compile(spec)
            assert (report.outcome, report.key) == ("hit", wanted["key"])


def test_the_working_folder_is_by_default_the_one_at_the_call(home, loader, monkeypatch):
    spec = cukiln.ModuleSpec(TWICE, flags=["-include", "pre.h"], targets=["sm_90a"])
    for folder in "one", "two":
        (home / folder).mkdir()
        (home / folder / "pre.h").write_text(f"// {folder}\n")
        monkeypatch.chdir(home / folder)
        assert loader.compile(spec)[0].outcome == "compiled"
        assert loader.compile(spec)[0].outcome == "hit"


def test_standard_headers_for_device_code_can_be_left_out(loader):
    text = '#include <cstdint>\nextern "C" __global__ void k(std::int32_t* x) { *x = 1; }'
    for std_shims in False, True:
        spec = cukiln.ModuleSpec(
            cukiln.Source("k.cu", text), targets=["sm_90a"], std_shims=std_shims
        )
        if std_shims:
            assert loader.compile(spec)[0].outcome == "compiled"
        else:
            with pytest.raises(cukiln.CompileError, match="std_shims is off"):
                loader.compile(spec)


def test_named_headers_are_found_by_name(loader):
    text = '#include <jit/a.h>\nextern "C" __global__ void k(int* x) { *x = A; }'
    spec = cukiln.ModuleSpec(
        cukiln.Source("k.cu", text), targets=["sm_90a"], named_headers={"jit/a.h": "#define A 1\n"}
    )
    assert loader.compile(spec)[0].outcome == "compiled"
    assert loader.compile(spec)[0].outcome == "hit"
    spec = cukiln.ModuleSpec(
        cukiln.Source("k.cu", text), targets=["sm_90a"], named_headers={"a.h": b"#define A 1\n"}
    )
    with pytest.raises(cukiln.CompileError, match="jit/a.h"):
        loader.compile(spec)


@pytest.mark.usefixtures("link")
def test_sources_are_linked(loader, tmp_path):
    caller = '__device__ int f(int); extern "C" __global__ void k(int* x) { *x = f(*x); }'
    callee = "__device__ int f(int x) { return x + 1; }"
    both = [cukiln.Source("a.cu", caller), cukiln.Source("b.cu", callee)]
    for mode in "rdc", "lto":
        spec = cukiln.ModuleSpec(both, targets=["sm_90a"], link=mode)
        assert loader.compile(spec)[0].outcome == "compiled"
        (report,) = loader.compile(spec)
        assert report.outcome == "hit"
        assert [kernel.name for kernel in report.kernels] == ["k"]
    flagged = cukiln.ModuleSpec(both, targets=["sm_90a"], flags=["-rdc=true"])
    assert loader.compile(flagged)[0].outcome == "hit"
    with pytest.raises(cukiln.CompileError, match="does not link"):
        loader.compile(cukiln.ModuleSpec(both[:1], targets=["sm_90a"], link="rdc"))
    with pytest.raises(cukiln.NotFoundError, match="none.o"):
        loader.compile(
            cukiln.ModuleSpec(both, targets=["sm_90a"], link="rdc", objects=[tmp_path / "none.o"])
        )
    with pytest.raises(cukiln.InvalidArgumentError, match="'all'; expected \"rdc\", \"lto\", or None"):
        loader.compile(cukiln.ModuleSpec(both, link="all"))


def test_variables_are_listed_and_have_addresses(loader, cuda):
    cuda.library.fake_cuda_set_global(b"table", ctypes.c_size_t(12))
    text = '__constant__ int table[3];\nextern "C" __global__ void k(int* x) { *x = table[*x]; }'
    spec = cukiln.ModuleSpec(
        cukiln.Source("k.cu", text), names=["k", "&table"], targets=["sm_90a"]
    )
    (report,) = loader.compile(spec)
    assert [kernel.name for kernel in report.kernels] == ["k"]
    assert report.variables == (cukiln.VariableInfo("table", "table", 12, True),)
    found = loader.get_global(spec, "table")
    assert found.size_bytes == 12 and found.address != 0
    assert loader.get_global(spec, " & table", device=0) == found
    with pytest.raises(cukiln.NotFoundError, match='no variable "none"'):
        loader.get_global(spec, "none")
    for device in 99, -1:
        with pytest.raises(cukiln.InvalidArgumentError):
            loader.get_global(spec, "table", device)


def test_a_compile_error_keeps_the_log(loader):
    broken = cukiln.ModuleSpec(cukiln.Source("broken.cu", "__global__ void k() { nonsense; }"))
    with pytest.raises(cukiln.CompileError) as raised:
        loader.compile(broken)
    assert raised.value.code == "compile_failed"
    assert 'identifier "nonsense" is undefined' in raised.value.log
    assert raised.value.log in str(raised.value)
    report = loader.preload([broken, module()], load=False, keep_going=True)
    assert (report.failed, report.compiled) == (1, 1)
    assert {type(one.error) for one in report.modules} == {type(None), cukiln.CompileError}


def test_a_report_has_the_manifests_order_whatever_was_ready_first(loader):
    ready = cukiln.ModuleSpec(cukiln.Source("ready.cu", "__global__ void ready() {}"))
    missing = [
        cukiln.ModuleSpec(cukiln.Source(f"{name}.cu", f"__global__ void {name}() {{}}"))
        for name in "ab"
    ]
    loader.compile(ready)
    seen = []
    report = loader.preload(
        [missing[0], ready, missing[1]],
        load=False,
        progress=lambda _done, _total, last: seen.append(last.name),
    )
    assert seen[0] == "ready"
    assert [module.name for module in report.modules] == ["a", "ready", "b"]


def test_errors_have_the_class_of_their_code(loader, tmp_path):
    with pytest.raises(cukiln.NotFoundError, match=r"nowhere\.json"):
        loader.preload(tmp_path / "nowhere.json")
    with pytest.raises(ValueError, match="sm_12345"):
        loader.explain(module(), "sm_12345")
    with pytest.raises(cukiln.InvalidArgumentError, match="flags is '-O3'; expected a list"):
        loader.compile(module(flags="-O3"))
    with cukiln.Loader(offline=True) as offline, pytest.raises(cukiln.NotFoundError):
        offline.compile(cukiln.ModuleSpec(cukiln.Source("a.cu", "// never seen")))
    with pytest.raises(cukiln.NotFoundError, match="no kernel 'none' is ready"):
        loader["none"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda loader: cukiln.Loader(jobs=-1), "jobs is -1; expected 1 to"),
        (lambda loader: cukiln.Loader(jobs=0), "jobs is 0; .* or None for the default"),
        (lambda loader: cukiln.Loader(compile_timeout=0), "compile_timeout is 0; expected"),
        (lambda loader: cukiln.Loader(compile_timeout=math.nan), "compile_timeout is nan"),
        (lambda loader: cukiln.Loader(compile_timeout=1 << 32), "at most 4294967 seconds"),
        (lambda loader: cukiln.Loader(max_bytes=-1), "max_bytes is -1"),
        (lambda loader: cukiln.Loader(memory_bytes=-1), "memory_bytes is -1"),
        (lambda loader: cukiln.Loader(include_path="/usr"), "include_path is '/usr'; expected a l"),
        (lambda loader: loader.preload(targets="sm_90a"), "targets is 'sm_90a'; expected a list"),
        (lambda loader: loader.preload(modules="sampler"), "modules is 'sampler'; expected a list"),
        (lambda loader: loader.preload(["a.cu"]), "'a.cu' is a str; expected a ModuleSpec"),
        (lambda loader: loader.get("a.cu"), "expected a ModuleSpec"),
        (lambda loader: cukiln.get_cuda_module("a", [], loader=loader), "a has no sources"),
        (
            lambda loader: cukiln.get_cuda_module("a", ["a.cu"], "-O3", loader=loader),
            "extra_cuda_cflags is '-O3'; expected a list",
        ),
        (
            lambda loader: cukiln.get_cuda_module("a", ["a.cu"], names="k", loader=loader),
            "names is 'k'; expected a list",
        ),
    ],
)
def test_what_would_be_taken_for_something_else_is_refused(loader, call, said):
    with pytest.raises(cukiln.InvalidArgumentError, match=said):
        call(loader)


def test_without_pytorch_it_says_what_to_install(home):
    done = run("import sys; sys.modules['torch'] = None; import cukiln.torch")
    assert "pip install 'cukiln[torch]'" in done.stderr


def test_a_module_without_a_name_is_called_by_its_source(loader):
    with pytest.raises(cukiln.NotFoundError, match=r"^cannot open /nowhere/none\.cu: "):
        loader.compile(cukiln.ModuleSpec("/nowhere/none.cu"))
    with pytest.raises(cukiln.CompileError, match=r"^none does not compile for sm_"):
        loader.compile(cukiln.ModuleSpec(cukiln.Source("none.cu", "int oops = ;")))


def test_a_sealed_loader_compiles_nothing(loader, cuda):
    loader.seal()
    assert loader.sealed
    with pytest.raises(cukiln.SealedError):
        loader.get(module())


def test_a_manifest_is_preloaded_with_progress(loader, cuda, tmp_path):
    (tmp_path / "twice.cu").write_text(TWICE.text)
    (tmp_path / "m.json").write_text(
        '{"format": 1, "modules": [{"name": "t", "sources": ["twice.cu"], "names": ["twice"]}]}'
    )
    seen = []
    report = loader.preload(tmp_path / "m.json", progress=lambda *given: seen.append(given))
    assert [(done, total, one.name) for done, total, one in seen] == [(1, 1, "t")]
    assert (report.compiled, len(report.modules), len(loader)) == (1, 1, 1)
    assert loader[0] == loader["twice"] == loader["t/twice@sm_90a"]
    assert loader.find("none") is None and loader.find(1) is None and loader.find(-1) is None


def test_an_exception_in_progress_is_raised_after_the_work(loader):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loader.preload([module()], load=False, progress=interrupt)
    assert loader.stats().compiles == 1


def test_shipped_modules_are_preloaded_by_name(loader):
    report = loader.preload(modules=["amax_gsa"], targets=["sm_90a"], load=False)
    assert [one.name for one in report.modules] == ["amax_gsa"]
    listed = r'the manifest has no module "amax"; it has (.*, )?"amax_gsa", '
    with pytest.raises(cukiln.NotFoundError, match=listed):
        loader.preload(modules=["amax"], load=False)
    with pytest.raises(cukiln.NotFoundError, match='has no module "a"; it has none'):
        loader.preload([], modules=["a"], load=False)
    many = [module(name=f"m{index}") for index in range(51)]
    with pytest.raises(cukiln.NotFoundError, match='it has "m0", .* "m49", and more$'):
        loader.preload(many, modules=["a"], load=False)


def run(script, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def shared_folder(tmp_path):
    wide = tmp_path / "wide"
    wide.mkdir()
    wide.chmod(0o777)
    return wide


def test_warnings_go_to_the_logger(shared_folder, caplog):
    with caplog.at_level(logging.WARNING, logger="cukiln"), cukiln.Loader(store=shared_folder):
        assert any(str(shared_folder) in record.getMessage() for record in caplog.records)


def test_a_host_without_logging_hears_of_its_store_and_settings_once(shared_folder):
    code = "import cukiln\nfor i in range(2): cukiln.Loader().close()"
    done = run(code, CUKILN_STORE=str(shared_folder), CUKILN_JOBS="many")
    lines = done.stderr.splitlines()
    assert len(lines) == 2, lines
    assert lines[0].startswith("cukiln: jobs in environment CUKILN_JOBS is ignored")
    assert lines[1].startswith("cukiln: kernels are kept in memory only") and str(shared_folder) in lines[1]
    silent = "import logging; logging.getLogger().addHandler(logging.StreamHandler(open('/dev/null', 'w')))\n"
    done = run(silent + code, CUKILN_STORE=str(shared_folder))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_an_unknown_variable_is_warned_of_once():  # fault 459
    code = "import cukiln\nfor i in range(2): cukiln.Loader().close()"
    log = "import logging; logging.basicConfig()\n"
    assert run(code, CUKILN_FOO="1").stderr.count("CUKILN_FOO is not a setting") == 1
    assert run(log + code, CUKILN_FOO="1").stderr.count("CUKILN_FOO is not a setting") == 1


def test_a_given_store_that_cannot_be_used_is_said_once(shared_folder, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for store, log, expected in (
        (shared_folder, "", 1),
        (file, "", 1),
        (tmp_path / "good", "", 0),
        (file, "import logging; logging.basicConfig()\n", 1),  # as a record, and not twice
    ):
        code = f"{log}import cukiln\ncukiln.Loader(store={str(store)!r})"
        done = run(code)
        lines = [line for line in done.stderr.splitlines() if str(store) in line]
        assert len(lines) == len(done.stderr.splitlines()) == expected, done.stderr
        assert not lines or lines[0].startswith("WARNING:cukiln:" if log else "cukiln: ")
        assert done.returncode == 0


def test_a_loader_shows_its_store(tmp_path):
    loader = cukiln.Loader(store=tmp_path / "shown")
    assert repr(loader) == f"<cukiln.Loader store={str(tmp_path / 'shown')!r}>"
    loader.close()
    assert repr(loader).endswith(" closed>")
    with cukiln.Loader() as plain:
        assert repr(plain) == "<cukiln.Loader>"


def test_a_dropped_loader_is_closed(home, tmp_path):
    loader = cukiln.Loader(store=tmp_path / "dropped")
    loader.compile(module())
    handle = loader._finalizer
    del loader
    gc.collect()
    assert not handle.alive


def test_a_forked_child_makes_its_own_default_loader(home):
    done = run("""
        import os, cukiln
        parent = cukiln.default_loader()
        child = os.fork()
        if child == 0:
            mine = cukiln.default_loader()
            spec = cukiln.ModuleSpec(cukiln.Source("a.cu", "// nothing"), targets=["sm_90a"])
            ok = mine is not parent and mine.compile(spec)[0].outcome == "compiled"
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        print(parent is cukiln.default_loader())
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


def test_a_library_that_is_not_there_is_named(home):
    done = run("import cukiln; cukiln.Loader()", CUKILN_LIBRARY="/nowhere/libcukiln.so")
    assert "/nowhere/libcukiln.so" in done.stderr
    assert "set CUKILN_LIBRARY" in done.stderr
