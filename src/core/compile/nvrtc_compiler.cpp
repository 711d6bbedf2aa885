// SPDX-License-Identifier: Apache-2.0
#include "core/compile/nvrtc_compiler.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <thread>

#include "core/base/file_lock.hpp"
#include "core/base/mutex.hpp"
#include "core/base/process_local.hpp"
#include "core/base/result.hpp"
#include "core/compile/bundled_headers.hpp"
#include "core/compile/compile_errors.hpp"
#include "core/compile/compile_log.hpp"
#include "core/compile/link_tool.hpp"
#include "core/compile/local_file_provider.hpp"
#include "core/compile/nvrtc_api.hpp"
#include "core/compile/toolchain_identity.hpp"
#include "core/compile/worker_pool.hpp"
#include "core/key/variables.hpp"

namespace cukiln {

namespace {

using std::chrono::steady_clock;

constexpr const char* kProbeLock = "toolchain.lock";
constexpr std::chrono::seconds kProbeLockTimeout{20};
constexpr std::chrono::seconds kReleaseTimeout{5};

// Address space that a worker reserves without using the memory: stacks, the end of the heap, the
// parts of NVRTC that a compile does not run.
constexpr std::uint64_t kUntouchedBytes = 256ull << 20;

/// True for arguments that NVRTC 12.8 to 13.5 does not forget: after --optimization-info all later
/// compiles of the process write remarks into their logs.
bool changes_later_compiles(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](std::string_view argument) {
    argument.remove_prefix(std::min(argument.find_first_not_of('-'), argument.size()));
    return argument.starts_with("optimization-info") || argument.starts_with("opt-info");
  });
}

std::string owner_line(const std::string& label) {
  std::time_t now = 0;
  std::time(&now);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return fmt::format("pid {} since {} compiling {}", ::getpid(), text, label);
}

}  // namespace

struct NvrtcCompiler::ToolState {
  WorkerPool pool;
  Mutex mutex;
  std::optional<ToolIdentity> identity CUKILN_GUARDED_BY(mutex);
};

// One for each process. A forked child keeps copies of the workers' descriptors. They do no harm:
// the parent closes connections with shutdown(), and workers see its death by a pidfd.
struct NvrtcCompiler::State {
  ToolState nvrtc, linker;
};

/// One compile, or link, on one worker.
struct NvrtcCompiler::Run {
  const NvrtcCompilerOptions& options;
  std::uint64_t memory_bytes = 0;  ///< of the worker's address space
  const ToolIdentity& identity;
  const ToolIdentity* linker;  ///< null: a compile
  const CompileJob& job;
  wire::WaitOptions wait;
  FileLock own_lock;  ///< until a worker has it
  bool is_locked = false;
  std::unique_ptr<WorkerProcess> worker;
  bool replied = false;  ///< the worker has sent a message about this job

  const ToolIdentity& tool() const { return linker != nullptr ? *linker : identity; }
  FailureContext context() const {
    return {job,
            identity,
            memory_bytes,
            memory_bytes < options.memory_bytes ? "CUKILN_MEMORY" : "compile_memory_bytes",
            worker->hello().max_tasks,
            worker->stderr_tail(),
            linker};
  }
  std::optional<CompileOutcome> lock(std::optional<Error>& error);
  Result<CompileResult> compile();
  Result<CompileResult> finish(wire::Compiled compiled, FileProvider& files);
  Result<CompileResult> link();
  void release();
};

NvrtcCompiler::NvrtcCompiler(NvrtcCompilerOptions options)
    : options_(std::move(options)),
      budget_(options_.budget != nullptr
                  ? options_.budget
                  : std::make_shared<CompileBudget>(CompileBudget::Limits{})),
      state_(std::make_unique<ProcessLocal<State>>()) {}

NvrtcCompiler::~NvrtcCompiler() = default;

NvrtcCompiler::ToolState& NvrtcCompiler::state_of(Tool tool) {
  State& own = state_->get();
  return tool == Tool::nvrtc ? own.nvrtc : own.linker;
}

std::size_t NvrtcCompiler::max_idle() { return budget_->workers_to_keep(); }

/// What a worker's address space is limited to: `memory_bytes`, or less if the budget has less.
std::uint64_t NvrtcCompiler::worker_memory() const {
  const std::uint64_t budget = budget_->memory_bytes();
  return budget == 0 || budget >= options_.memory_bytes
             ? options_.memory_bytes
             : std::min(options_.memory_bytes, budget + kUntouchedBytes);
}

/// The NVRTC of the options, or what the search finds. The former is searched for by its library if
/// another version took its place, whose builtins library has another name.
Result<NvrtcInstall> NvrtcCompiler::find_install(Tool tool) {
  NvrtcInstall found;
  if (tool == Tool::nvjitlink) {
    if (options_.link == nullptr) {
      return Error(ErrorCode::not_found,
                   "nvJitLink is not searched for, because this cukiln was built without "
                   "src/addons/link; build it with that folder to link modules");
    }
    CUKILN_TRY(const ToolIdentity nvrtc, identity());
    CUKILN_TRY(found.library, options_.link->find(nvrtc.install.library, options_.search));
    return found;
  }
  if (!options_.install) {
    return find_nvrtc(options_.search);
  }
  if (stamps_of(*options_.install)) {
    return *options_.install;
  }
  NvrtcSearch search = options_.search;
  search.nvrtc_library = options_.install->library;
  CUKILN_TRY(found, find_nvrtc(search));
  found.headers = options_.install->headers;
  return found;
}

/// Takes something from the identity of a tool, which is found first if it is not known yet.
template <class Take>
auto NvrtcCompiler::from_identity(Tool tool, const Take& take)
    -> Result<decltype(take(std::declval<const ToolIdentity&>()))> {
  ToolState& own = state_of(tool);
  const MutexLock lock(own.mutex);
  if (!own.identity) {
    ToolIdentity found;
    found.tool = tool;
    CUKILN_CHECK(identify(own, found));
    own.identity = std::move(found);
  }
  return take(*own.identity);
}

Result<ToolIdentity> NvrtcCompiler::identity(Tool tool) {
  return from_identity(tool, [](const ToolIdentity& known) { return known; });
}

Result<void> NvrtcCompiler::identify(ToolState& own, ToolIdentity& found) {
  CUKILN_TRY(found.install, find_install(found.tool));
  CUKILN_TRY(found.stamps, stamps_of(found.install));
  if (!recall_tool(options_.stats, found)) {
    CUKILN_CHECK(probe_once(own, found));
  }
  if (!found.observed) {
    options_.log.warn(
        "{} {} ({}) reads files in a way that the compile worker cannot observe: {} are not stored",
        name_of(found.tool), found.toolchain.version, found.install.library,
        found.tool == Tool::nvrtc ? "results" : "linked modules");
  }
  if (found.tool == Tool::nvrtc) {
    add_bundled_headers(found);
  }
  return {};
}

/// Adds the headers that NVRTC carries if there are no others.
void NvrtcCompiler::add_bundled_headers(ToolIdentity& found) {
  if (options_.headers_folder.empty() || !carries_headers(found.toolchain.version) ||
      has_cuda_headers(found.install.headers)) {
    return;
  }
  auto worker = find_worker(options_.worker);
  auto folder = worker ? install_bundled_headers(*worker, found.install, found.toolchain,
                                                 options_.headers_folder)
                       : Result<std::string>(std::move(worker).error());
  if (folder) {
    found.install.headers.push_back(*std::move(folder));
    return;
  }
  found.headers_problem = folder.error().message();
  options_.log.warn("there are no CUDA headers: {}", found.headers_problem);
}

/// Probes once for several processes that start together: one holds the lock and probes, and the
/// others wait for the record that it saves. Unlike a compile's lock, this one is held by this
/// process: only briefly, and FileLock closes it in forked children.
Result<void> NvrtcCompiler::probe_once(ToolState& own, ToolIdentity& found) {
  if (options_.lock_folder.empty()) {
    return probe(own, found);
  }
  const std::string path = join_path(options_.lock_folder, kProbeLock);
  const auto deadline = steady_clock::now() + kProbeLockTimeout;
  for (;;) {
    const auto lock = FileLock::acquire(path, FileLock::Mode::exclusive, {});
    if (recall_tool(options_.stats, found)) {
      return {};
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now());
    if (lock || lock.error().code() != ErrorCode::timeout || left.count() <= 0) {
      return probe(own, found);
    }
    // A shared lock, so that all waiting processes continue together: they only read the record.
    static_cast<void>(FileLock::acquire(path, FileLock::Mode::shared, left));
  }
}

Result<void> NvrtcCompiler::probe(ToolState& own, ToolIdentity& found) {
  CUKILN_TRY(const WorkerOptions start, worker_options(found));
  const std::size_t compiles = found.tool == Tool::nvrtc ? upcoming_.load() : 1;
  const std::size_t count =
      std::clamp<std::size_t>(compiles, 1, std::max<std::size_t>(max_idle(), 1));
  CUKILN_TRY(auto workers, probe_tool(start, count, options_.stats, found));
  for (std::unique_ptr<WorkerProcess>& worker : workers) {
    own.pool.put_back(std::move(worker), max_idle());
  }
  if (options_.save_stats) {
    options_.save_stats();
  }
  return {};
}

Result<WorkerOptions> NvrtcCompiler::worker_options(const ToolIdentity& identity) const {
  CUKILN_TRY(std::string path, find_worker(options_.worker));
  return WorkerOptions{std::move(path), identity.install.library, identity.install.builtins,
                       worker_memory(), options_.worker_idle,     identity.tool == Tool::nvjitlink};
}

Result<Toolchain> NvrtcCompiler::toolchain() {
  return from_identity(Tool::nvrtc, [](const ToolIdentity& known) { return known.toolchain; });
}

Result<Toolchain> NvrtcCompiler::linker() {
  return from_identity(Tool::nvjitlink, [](const ToolIdentity& known) { return known.toolchain; });
}

Result<std::vector<Target>> NvrtcCompiler::targets() {
  return from_identity(Tool::nvrtc, [](const ToolIdentity& known) { return known.targets; });
}

std::vector<std::string> NvrtcCompiler::toolkit_folders() {
  ToolState& own = state_of(Tool::nvrtc);
  {
    const MutexLock lock(own.mutex);
    if (own.identity) {
      return own.identity->install.headers;
    }
  }
  if (options_.install) {
    return options_.install->headers;
  }
  auto found = find_nvrtc(options_.search);
  if (!found) {
    return find_headers(options_.search);
  }
  return std::move(found->headers);
}

/// Starts a worker for a run, with the libraries whose digests are in the key. Errors: those of
/// WorkerProcess::start; incompatible (a library was replaced).
Result<std::unique_ptr<WorkerProcess>> NvrtcCompiler::start_worker(ToolState& own, const Run& run) {
  const ToolIdentity& tool = run.tool();
  CUKILN_TRY(const WorkerOptions start, worker_options(tool));
  auto worker = WorkerProcess::start(start, run.wait);
  // The libraries that this worker opened must be those whose digest is in the key. One that was
  // replaced by another version may not start: its builtins have another name.
  if (const auto stamps = stamps_of(tool.install); !stamps || *stamps != tool.stamps) {
    const MutexLock lock(own.mutex);
    own.identity.reset();
    return make_error(ErrorCode::incompatible,
                      "{} ({}) was replaced while this process ran; repeat the request",
                      name_of(tool.tool), tool.install.library);
  }
  return worker;
}

Result<CompileOutcome> NvrtcCompiler::compile(const CompileJob& job) {
  CUKILN_TRY(const ToolIdentity known, identity());
  const CompileInput& input = job.input;
  std::optional<ToolIdentity> linker;
  if (input.request.link) {
    CUKILN_TRY(linker, identity(Tool::nvjitlink));
  }
  ToolState& own = state_of(linker ? Tool::nvjitlink : Tool::nvrtc);
  WorkerPool& pool = own.pool;
  CUKILN_TRY(const CompileBudget::Share share,
             budget_->admit(
                 input.expected_bytes != 0 ? input.expected_bytes : CompileBudget::kTypicalBytes,
                 input.label, input.timeout, input.cancelled));
  Run run{options_, worker_memory(),
          known,    linker ? &*linker : nullptr,
          job,      {steady_clock::now() + input.timeout, input.cancelled},
          {},       false,
          nullptr};
  for (bool fresh = false;; fresh = true) {
    run.worker = fresh ? nullptr : pool.take();
    const bool reused = run.worker != nullptr;
    if (!reused) {
      CUKILN_TRY(run.worker, start_worker(own, run));
    }
    run.replied = false;
    std::optional<Error> error;
    if (std::optional<CompileOutcome> early = run.lock(error)) {
      pool.put_back(std::move(run.worker), max_idle());
      return *std::move(early);
    }
    if (!error) {
      Result<CompileResult> compiled = linker ? run.link() : run.compile();
      if (compiled) {
        CompileOutcome outcome;
        outcome.result = *std::move(compiled);
        if (job.guard.publish) {
          job.guard.publish(outcome.result);
        }
        run.release();
        pool.put_back(std::move(run.worker), max_idle());
        return outcome;
      }
      if (compiled.error().code() == ErrorCode::compile_failed) {
        run.release();
        pool.put_back(std::move(run.worker), max_idle());
      }
      error = std::move(compiled).error();
    }
    // An idle worker may have ended just after it was taken from the pool: then use a new one.
    if (!reused || run.replied) {
      return *std::move(error);
    }
  }
}

/// Locks the request, and leaves the lock to the worker. Returns an outcome if there is nothing to
/// compile. Otherwise `error` is set, or the lock is held.
std::optional<CompileOutcome> NvrtcCompiler::Run::lock(std::optional<Error>& error) {
  const std::string& path = job.guard.lock_path;
  if (path.empty()) {
    return std::nullopt;
  }
  CompileOutcome outcome;
  if (!own_lock.held()) {  // a worker that had ended before this one did not take it
    auto acquired = FileLock::acquire_removable(path);
    if (!acquired && acquired.error().code() == ErrorCode::timeout) {
      outcome.state = CompileState::busy;
      outcome.owner = FileLock::holder(path).value_or(std::string());
      return outcome;
    }
    if (!acquired) {
      // Another process may then compile the same request. Both results are correct.
      options.log.warn("compiling {} without a lock: {}", job.input.label,
                       acquired.error().message());
      return std::nullopt;
    }
    own_lock = *std::move(acquired);
    own_lock.write_line(owner_line(job.input.label));
  }
  const WorkerReply reply = worker->request(wire::WorkerOp::lock, {}, wait, own_lock.descriptor());
  replied = reply.failure != WorkerFailure::closed;
  if (!reply.is(wire::WorkerOp::locked)) {
    error = worker_failed(context(), reply);
    return std::nullopt;
  }
  own_lock.hand_over();
  is_locked = true;
  if (job.guard.still_needed && !job.guard.still_needed()) {
    release();
    outcome.state = CompileState::superseded;
    return outcome;
  }
  return std::nullopt;
}

Result<CompileResult> NvrtcCompiler::Run::compile() {
  const CompileRequest& request = job.input.request;
  const VirtualSource unit = request.translation_unit();
  std::optional<LocalFileProvider> local;
  FileProvider& files = job.files.provider() != nullptr
                            ? *job.files.provider()
                            : local.emplace(request, unit, *job.files.local());
  wire::Compile message{unit.path, std::string(unit.text.view()), request.options.arguments,
                        request.nvrtc_expressions(), !identity.observed};
  if (request.program) {
    message.is_program = true;
    message.output = request.program->output;
    message.working_folder = request.program->working_folder;
  }
  for (const VirtualSource& header : request.headers) {
    message.headers.emplace_back(header.path, std::string(header.text.view()));
  }
  const std::string body = message.encode();
  WorkerReply reply = worker->request(wire::WorkerOp::compile, body, wait);
  replied = replied || reply.failure != WorkerFailure::closed;
  worker->count_compile();
  if (changes_later_compiles(request.options.arguments)) {
    worker->do_not_reuse();
  }
  while (reply.is(wire::WorkerOp::ask)) {
    CUKILN_TRY(const std::string answer, files.reply(reply.frame.body));
    reply = worker->request(wire::WorkerOp::answer, answer, wait);
  }
  auto compiled =
      reply.is(wire::WorkerOp::result) ? wire::Compiled::decode(reply.frame.body) : std::nullopt;
  if (!compiled) {
    return worker_failed(context(), reply);
  }
  return finish(*std::move(compiled), files);
}

Result<CompileResult> NvrtcCompiler::Run::finish(wire::Compiled compiled, FileProvider& files) {
  CompileResult result;
  CUKILN_TRY(result.dependencies, files.take_dependencies(compiled));
  if (!files.refused().empty()) {
    return make_error(ErrorCode::compile_failed, "{} cannot be compiled: {}", job.input.label,
                      files.refused());
  }
  const CompileRequest& request = job.input.request;
  CompileLog log = request.program ? CompileLog{{}, compiled.log} : parse_log(compiled.log);
  if (compiled.status != wire::CompileStatus::ok) {
    const int code = compiled.nvrtc_code;
    if (job.nvrtc_failure != nullptr &&
        (code == kNvrtcInvalidOption || code == kNvrtcCompilation)) {
      *job.nvrtc_failure = {code, compiled.log};
      if (compiled.status == wire::CompileStatus::failed && identity.observed &&
          !compiled.uses_time && is_of_front_end(compiled.log)) {
        job.nvrtc_failure->dependencies = result.dependencies;
      }
    }
    return compile_failed(context(), compiled, log.text, result.dependencies);
  }
  const bool is_ptx = !request.program && output_of(request.options.arguments) == OutputKind::ptx;
  if (Result<void> checked =
          is_ptx ? Result<void>() : check_output(compiled.image, request.target, request.output());
      !checked) {
    if (job.failure_kind != nullptr) {
      *job.failure_kind = CompileFailureKind::garbage;
    }
    return std::move(checked).error().with_context(
        fmt::format("NVRTC {} reported that {} compiled, but its result is unusable",
                    identity.toolchain.version, job.input.label));
  }
  result.cubin.kernels =
      choose_kernels(log.kernels, request.options.name_expressions, compiled.lowered);
  if (!request.program) {
    mark_variables(compiled.image, result.cubin.kernels);
  }
  result.cubin.image = SharedBytes(std::move(compiled.image));
  result.cubin.log = std::move(log.text);
  result.cubin.ptx = SharedBytes(std::move(compiled.ptx));
  result.observed = identity.observed;
  result.uses_time = compiled.uses_time;
  result.compile_us = compiled.compile_us;
  result.peak_bytes = compiled.peak_bytes;
  return result;
}

Result<CompileResult> NvrtcCompiler::Run::link() {
  CUKILN_TRY(const std::string body, options.link->encode(job.input));
  const WorkerReply reply = worker->request(wire::WorkerOp::link, body, wait);
  replied = replied || reply.failure != WorkerFailure::closed;
  worker->count_compile();
  if (!job.input.request.link->objects.empty()) {
    worker->do_not_reuse();  // nvJitLink crashes on damaged objects: one may take it over
  }
  auto linked =
      reply.is(wire::WorkerOp::result) ? wire::Compiled::decode(reply.frame.body) : std::nullopt;
  if (!linked) {
    return worker_failed(context(), reply);
  }
  return options.link->finish(context(), *std::move(linked));
}

void NvrtcCompiler::Run::release() {
  if (!is_locked) {
    return;
  }
  // While the lock is held, so that its next holder makes a file of its own. If this process was
  // silent for so long that the worker unlocked, another one may compile beside the next holder.
  ::unlink(job.guard.lock_path.c_str());
  const wire::WaitOptions brief{steady_clock::now() + kReleaseTimeout};
  if (!worker->request(wire::WorkerOp::release, {}, brief).is(wire::WorkerOp::released)) {
    worker.reset();  // ending the worker releases the lock
  }
}

}  // namespace cukiln
