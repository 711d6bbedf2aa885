// SPDX-License-Identifier: Apache-2.0
// The C interface from C: every function, on a machine without a GPU (a stand-in plays libcuda).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cukiln/cukiln.h>

static int failures = 0;
static const char* rule = "";  // the one being tested

static int check_that(int ok, const char* text, int line) {
  if (!ok) {
    ++failures;
    fprintf(stderr, "%s:%d: %s\n  %s\n  last error: %s: %.300s\n", __FILE__, line, rule, text,
            cukiln_code_name(cukiln_last_error_code()), cukiln_last_error());
  }
  return ok;
}
#define CHECK(condition) check_that((condition) != 0, #condition, __LINE__)
#define CHECK_CODE(expected, call) \
  check_that((call) == (expected), #call " is " #expected, __LINE__)
#define CHECK_ERROR_SAYS(part) CHECK(strstr(cukiln_last_error(), part) != NULL)

static char scratch[] = "/tmp/cukiln-c-XXXXXX";
static char store[64];
static const char* const kSource =
    "extern \"C\" __global__ void twice(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= "
    "2; }";

static char* write_file(const char* name, const char* text) {
  static char path[4][128];
  static int next = 0;
  char* const out = path[next++ % 4];
  snprintf(out, sizeof path[0], "%s/%s", scratch, name);
  FILE* const file = fopen(out, "w");
  CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
  return out;
}

static cukiln_options defaults(void) {
  cukiln_options options = {.struct_bytes = sizeof options,
                            .store_directory = store,
                            .system_directory = "",
                            .cuda_library = FAKE_CUDA};
  return options;
}

static cukiln_loader* open_loader(void) {
  const cukiln_options options = defaults();
  cukiln_loader* loader = NULL;
  if (!CHECK_CODE(CUKILN_OK, cukiln_loader_create(&options, &loader))) exit(1);
  return loader;
}

struct seen {
  size_t calls;
  size_t done;
  size_t total;
  cukiln_outcome outcome;
  cukiln_code code;
  char key[65];
  char reason[64];
  char log[256];
  size_t kernels;
  char kernel[16];
  unsigned registers;
};

static void remember(void* user, size_t done, size_t total, const cukiln_module_report* last) {
  struct seen* const seen = user;
  ++seen->calls;
  seen->done = done;
  seen->total = total;
  seen->outcome = last->outcome;
  seen->code = last->error_code;
  snprintf(seen->key, sizeof seen->key, "%s", last->key);
  snprintf(seen->reason, sizeof seen->reason, "%s", last->reason);
  snprintf(seen->log, sizeof seen->log, "%s", last->log);
  seen->kernels = last->kernel_count;
  if (last->kernel_count != 0) {
    snprintf(seen->kernel, sizeof seen->kernel, "%s", last->kernels[0].name);
    seen->registers = last->kernels[0].registers;
  }
}

/// Compiles one module for sm_90a, loads nothing.
static cukiln_code compile(cukiln_loader* loader, const char* text, struct seen* seen,
                           cukiln_preload_report* report) {
  const cukiln_source source = {.path = "twice.cu", .text = text, .text_bytes = strlen(text)};
  const char* const targets[] = {"sm_90a"};
  const cukiln_module module = {.struct_bytes = sizeof module,
                                .name = "twice",
                                .sources = &source,
                                .source_count = 1,
                                .targets = targets,
                                .target_count = 1};
  const cukiln_module* const modules[] = {&module};
  const cukiln_preload_options options = {
      .struct_bytes = sizeof options, .no_load = 1, .progress = remember, .progress_user = seen};
  memset(seen, 0, sizeof *seen);
  return cukiln_loader_preload_modules(loader, modules, 1, &options, report);
}

static void versions_and_codes_have_names(void) {
  CHECK(strcmp(cukiln_version(), CUKILN_EXPECTED_VERSION) == 0);
  CHECK(strcmp(cukiln_code_name(CUKILN_OK), "ok") == 0);
  CHECK(strcmp(cukiln_code_name(CUKILN_COMPILE_FAILED), "compile_failed") == 0);
  CHECK(strcmp(cukiln_code_name(CUKILN_INTERNAL), "internal") == 0);
  CHECK(strcmp(cukiln_code_name((cukiln_code)11), "unknown") == 0);
}

static void structs_carry_their_size(void) {
  cukiln_loader* loader = NULL;
  cukiln_options options = defaults();
  options.struct_bytes = 0;
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_create(&options, &loader));
  CHECK_ERROR_SAYS("struct_bytes");
  CHECK(loader == NULL);

  // A size that cuts a pointer was never a sizeof: half a pointer must not be followed.
  options.struct_bytes = offsetof(cukiln_options, store_directory) + 2;
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_create(&options, &loader));
  CHECK_ERROR_SAYS("struct_bytes");
  CHECK(loader == NULL);

  // A host built with a newer header: fine as long as nothing unknown is asked for.
  struct {
    cukiln_options known;
    long long newer;
  } newer = {defaults(), 0};
  newer.known.struct_bytes = sizeof newer;
  CHECK_CODE(CUKILN_OK, cukiln_loader_create(&newer.known, &loader));
  cukiln_loader_destroy(loader);
  newer.newer = 1;
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_create(&newer.known, &loader));
  CHECK_ERROR_SAYS("newer");

  // A host built with an older header: what comes after its end is not read.
  options = defaults();
  options.struct_bytes = offsetof(cukiln_options, include_path);
  options.include_path_count = 77;
  CHECK_CODE(CUKILN_OK, cukiln_loader_create(&options, &loader));
  struct {
    size_t struct_bytes;
    uint64_t entries;
    uint64_t untouched;
  } old_stats = {offsetof(cukiln_stats, store_bytes), 9, 9};
  CHECK_CODE(CUKILN_OK, cukiln_loader_stats(loader, (cukiln_stats*)(void*)&old_stats));
  CHECK(old_stats.entries == 0 && old_stats.untouched == 9);
  cukiln_loader_destroy(loader);
}

static void null_is_an_error_and_no_crash(void) {
  cukiln_loader* const loader = open_loader();
  cukiln_explanation* explanation = NULL;
  cukiln_kernel kernel = NULL;
  void* bytes = NULL;
  size_t size = 0;
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_create(NULL, NULL));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_preload(NULL, NULL, NULL, NULL));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_preload(loader, NULL, NULL, NULL));
  CHECK_ERROR_SAYS("cukiln_nvfp4_preload");  // where the kernels are that NULL was for
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_preload_modules(loader, NULL, 1, NULL, NULL));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_get(loader, NULL, NULL, NULL, &kernel));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_get_cuda_module(loader, "m", NULL, 1, NULL, 0));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_explain(loader, NULL, "sm_90a", &explanation));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_explain_keys(loader, NULL, NULL, &explanation));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_cubin(loader, "12", &bytes, &size));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_stats(loader, NULL));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_kernel_launch(NULL, NULL, NULL, NULL));
  const cukiln_launch_config config = {.struct_bytes = sizeof config};
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_kernel_launch(NULL, NULL, &config, NULL));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_kernel_check_parameters(NULL, NULL, 0));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_kernel_reserve_shared(NULL, 1));
  cukiln_kernel_attributes attributes = {.struct_bytes = sizeof attributes};
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_kernel_get_attributes(NULL, 0, &attributes));
  uint32_t blocks = 0;
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_kernel_max_blocks_per_sm(NULL, 0, 32, 0, &blocks));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_device_count(NULL, &size));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_device_count(loader, NULL));
  cukiln_device_info device = {.struct_bytes = sizeof device};
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_device(NULL, 0, &device));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_device(loader, 0, NULL));
  CHECK(cukiln_loader_find(loader, NULL) == NULL && cukiln_loader_find(NULL, "x") == NULL);
  CHECK(cukiln_loader_find(loader, "nothing") == NULL && cukiln_loader_at(loader, 0) == NULL);
  char spelling[8];
  CHECK(cukiln_canonical_name("& k<float,4>", NULL, 0) == 11);
  CHECK(cukiln_canonical_name("& k<float,4>", spelling, sizeof spelling) == 11);
  CHECK(strcmp(spelling, "k<float") == 0);
  CHECK(cukiln_canonical_name("&k", spelling, sizeof spelling) == 1 && strcmp(spelling, "k") == 0);
  CHECK(cukiln_canonical_name(NULL, spelling, sizeof spelling) == 0 && spelling[0] == '\0');
  CHECK(cukiln_kernel_name(NULL, NULL, 0) == 0 && cukiln_kernel_native(NULL) == NULL);
  cukiln_explanation_destroy(NULL);
  cukiln_free(NULL);
  cukiln_loader_destroy(loader);
  cukiln_loader_destroy(NULL);
}

static void* fail_in_another_thread(void* unused) {
  (void)unused;
  CHECK(cukiln_last_error_code() == CUKILN_OK && cukiln_last_error()[0] == '\0');
  cukiln_loader_stats(NULL, NULL);
  CHECK(cukiln_last_error_code() == CUKILN_INVALID_ARGUMENT);
  return NULL;
}

static void the_last_error_is_the_threads_own(void) {
  cukiln_loader* const loader = open_loader();
  CHECK_CODE(CUKILN_NOT_FOUND, cukiln_loader_preload(loader, "/nowhere/m.json", NULL, NULL));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, fail_in_another_thread, NULL) == 0);
  pthread_join(thread, NULL);
  CHECK(cukiln_last_error_code() == CUKILN_NOT_FOUND);
  CHECK_ERROR_SAYS("/nowhere/m.json");
  cukiln_stats stats = {.struct_bytes = sizeof stats};
  CHECK_CODE(CUKILN_OK, cukiln_loader_stats(loader, &stats));
  CHECK(cukiln_last_error_code() == CUKILN_NOT_FOUND);  // success leaves it
  cukiln_loader_destroy(loader);
}

static void what_was_compiled_is_found_and_explained(void) {
  cukiln_loader* const loader = open_loader();
  struct seen first;
  struct seen second;
  cukiln_preload_report report = {.struct_bytes = sizeof report};
  CHECK_CODE(CUKILN_OK, compile(loader, kSource, &first, &report));
  CHECK(first.outcome == CUKILN_COMPILED && first.calls == 1 && first.done == 1 &&
        first.total == 1);
  CHECK(first.kernels == 1 && strcmp(first.kernel, "twice") == 0 && first.registers != 0);
  CHECK(strlen(first.key) == 64 && report.compiled == 1 && report.failed == 0);
  CHECK(report.compile_milliseconds > 0 && report.compile_milliseconds <= report.milliseconds);
  CHECK_CODE(CUKILN_OK, compile(loader, kSource, &second, &report));
  CHECK(second.outcome == CUKILN_HIT && strcmp(first.key, second.key) == 0 && report.hits == 1);
  CHECK(report.compile_milliseconds == 0 && report.fetch_milliseconds == 0);
  CHECK(report.look_up_milliseconds > 0 && report.look_up_milliseconds < report.milliseconds);
  CHECK(second.kernels == 1 && second.registers == first.registers);

  void* cubin = NULL;
  size_t cubin_bytes = 0;
  CHECK_CODE(CUKILN_OK, cukiln_loader_cubin(loader, first.key, &cubin, &cubin_bytes));
  CHECK(cubin_bytes > 100 && memcmp(cubin, "\177ELF", 4) == 0);
  cukiln_free(cubin);
  CHECK_CODE(CUKILN_NOT_FOUND,
             cukiln_loader_cubin(loader,
                                 "0000000000000000000000000000000000000000000000000000000000000000",
                                 &cubin, &cubin_bytes));
  CHECK(cubin == NULL && cubin_bytes == 0);

  const cukiln_source source = {"twice.cu", kSource, strlen(kSource)};
  const char* const fast[] = {"--use_fast_math"};
  cukiln_module module = {
      .struct_bytes = sizeof module, .name = "twice", .sources = &source, .source_count = 1};
  cukiln_explanation* why = NULL;
  if (CHECK_CODE(CUKILN_OK, cukiln_loader_explain(loader, &module, "sm_90a", &why))) {
    CHECK(why->hit && strcmp(why->key, first.key) == 0 && why->difference_count == 0);
    cukiln_explanation_destroy(why);
  }
  module.flags = fast;
  module.flag_count = 1;
  if (CHECK_CODE(CUKILN_OK, cukiln_loader_explain(loader, &module, "sm_90a", &why))) {
    CHECK(!why->hit && strcmp(why->nearest, first.key) == 0 && why->difference_count >= 1);
    CHECK(strcmp(why->differences[0].field, "flag") == 0);
    CHECK(strstr(why->differences[0].now, "fast") != NULL);
    cukiln_explanation_destroy(why);
  }
  if (CHECK_CODE(CUKILN_OK, cukiln_loader_explain_keys(loader, first.key, first.key, &why))) {
    CHECK(why->hit && why->difference_count == 0);
    cukiln_explanation_destroy(why);
  }
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_explain(loader, &module, "sm_", &why));
  CHECK(why == NULL);

  cukiln_stats stats = {.struct_bytes = sizeof stats};
  CHECK_CODE(CUKILN_OK, cukiln_loader_stats(loader, &stats));
  CHECK(stats.compiles == 1 && stats.hits == 1 && stats.misses_new == 1 && stats.entries == 1);
  cukiln_loader_destroy(loader);
}

static void flags_act_in_their_order_and_from_the_working_folder(void) {
  cukiln_loader* const loader = open_loader();
  write_file("pre.h", "#define N 3\n");
  const char* const text = "extern \"C\" __global__ void k(int* x) { *x = N + M; }";
  const cukiln_source source = {"k.cu", text, strlen(text)};
  const char* const flags[] = {"-UM", "-DM=1", "-include", "pre.h"};
  const char* const targets[] = {"sm_90a"};
  cukiln_module module = {.struct_bytes = sizeof module,
                          .sources = &source,
                          .source_count = 1,
                          .flags = flags,
                          .flag_count = 4,
                          .targets = targets,
                          .target_count = 1,
                          .working_folder = scratch};
  const cukiln_module* const modules[] = {&module};
  const cukiln_preload_options options = {.struct_bytes = sizeof options, .no_load = 1};
  CHECK_CODE(CUKILN_OK, cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  cukiln_explanation* why = NULL;
  if (CHECK_CODE(CUKILN_OK, cukiln_loader_explain(loader, &module, "sm_90a", &why))) {
    CHECK(why->hit);
    cukiln_explanation_destroy(why);
  }
  // A host that was built before the member existed.
  module.struct_bytes = offsetof(cukiln_module, working_folder);
  module.working_folder = (const char*)1;
  module.flag_count = 2;
  if (CHECK_CODE(CUKILN_OK, cukiln_loader_explain(loader, &module, "sm_90a", &why))) {
    CHECK(!why->hit);
    cukiln_explanation_destroy(why);
  }
  cukiln_loader_destroy(loader);
}

static void standard_headers_for_device_code_can_be_left_out(void) {
  cukiln_loader* const loader = open_loader();
  const char* const text =
      "#include <cstdint>\nextern \"C\" __global__ void k(std::int32_t* x) { *x = 1; }";
  const cukiln_source source = {"k.cu", text, strlen(text)};
  const char* const targets[] = {"sm_90a"};
  cukiln_module module = {.struct_bytes = sizeof module,
                          .sources = &source,
                          .source_count = 1,
                          .targets = targets,
                          .target_count = 1,
                          .no_std_shims = 1};
  const cukiln_module* const modules[] = {&module};
  const cukiln_preload_options options = {.struct_bytes = sizeof options, .no_load = 1};
  CHECK_CODE(CUKILN_COMPILE_FAILED,
             cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  CHECK(strstr(cukiln_last_error(), "std_shims is off") != NULL);
  // A host that was built before the member existed has them.
  module.struct_bytes = offsetof(cukiln_module, no_std_shims);
  CHECK_CODE(CUKILN_OK, cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  cukiln_loader_destroy(loader);
}

static void a_compile_error_has_the_compilers_log(void) {
  cukiln_loader* const loader = open_loader();
  struct seen seen;
  CHECK_CODE(CUKILN_COMPILE_FAILED,
             compile(loader, "__global__ void k() { nonsense; }", &seen, NULL));
  CHECK(strstr(cukiln_last_error_log(), "nonsense") != NULL);
  CHECK(seen.code == CUKILN_COMPILE_FAILED && seen.outcome == CUKILN_FAILED);
  CHECK(strstr(seen.log, "nonsense") != NULL && seen.key[0] == '\0' && seen.kernels == 0);
  cukiln_loader_destroy(loader);
}

static void offline_forbids_a_compile(void) {
  cukiln_options options = defaults();
  options.offline = 1;
  cukiln_loader* loader = NULL;
  CHECK_CODE(CUKILN_OK, cukiln_loader_create(&options, &loader));
  struct seen seen;
  CHECK_CODE(CUKILN_NOT_FOUND,
             compile(loader, "extern \"C\" __global__ void unseen() {}", &seen, NULL));
  CHECK(seen.outcome == CUKILN_MISSING);
  cukiln_loader_destroy(loader);
}

static void a_daemon_can_be_required_or_left_out(void) {
  cukiln_options options = defaults();
  options.daemon = CUKILN_DAEMON_REQUIRE;
  options.daemon_socket = "/nonexistent/cukilnd.sock";
  cukiln_loader* loader = NULL;
  CHECK_CODE(CUKILN_OK, cukiln_loader_create(&options, &loader));
  struct seen seen;
  CHECK_CODE(CUKILN_NOT_FOUND, compile(loader, "extern \"C\" __global__ void alone() {}", &seen, NULL));
  CHECK_ERROR_SAYS("daemon=require");
  cukiln_loader_destroy(loader);
  options.daemon = CUKILN_DAEMON_OFF;
  CHECK_CODE(CUKILN_OK, cukiln_loader_create(&options, &loader));
  CHECK_CODE(CUKILN_OK, compile(loader, "extern \"C\" __global__ void alone() {}", &seen, NULL));
  cukiln_loader_destroy(loader);
  options.daemon = 4;
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_create(&options, &loader));
  CHECK_ERROR_SAYS("0 to 3");
}

struct events {
  size_t count;
  cukiln_event_kind kinds[8];
  char module[16];
  char target[16];
  char key[65];
  char reason[64];
  double milliseconds;
};

static void count_event(void* user, const cukiln_event* event) {
  struct events* const events = user;
  if (events->count == 8) return;
  events->kinds[events->count++] = event->kind;
  CHECK(event->failed == 0);
  snprintf(events->module, sizeof events->module, "%s", event->module);
  snprintf(events->target, sizeof events->target, "%s", event->target);
  snprintf(events->key, sizeof events->key, "%s", event->key);
  snprintf(events->reason, sizeof events->reason, "%s", event->reason);
  events->milliseconds = event->milliseconds;
}

static void events_are_received(void) {
  struct events events = {0};
  cukiln_options options = defaults();
  options.events = count_event;
  options.events_user = &events;
  cukiln_loader* loader = NULL;
  CHECK_CODE(CUKILN_OK, cukiln_loader_create(&options, &loader));
  struct seen seen;
  const char* const text = "extern \"C\" __global__ void of_events() {}";
  CHECK_CODE(CUKILN_OK, compile(loader, text, &seen, NULL));
  CHECK(events.count == 2 && events.kinds[0] == CUKILN_EVENT_MISS &&
        events.kinds[1] == CUKILN_EVENT_COMPILE);
  CHECK(strcmp(events.module, "twice") == 0 && strcmp(events.target, "sm_90a") == 0);
  CHECK(strcmp(events.key, seen.key) == 0 && events.milliseconds > 0);
  CHECK_CODE(CUKILN_OK, compile(loader, text, &seen, NULL));
  CHECK(events.count == 3 && events.kinds[2] == CUKILN_EVENT_HIT);
  CHECK(strcmp(events.reason, "in the store") == 0);
  cukiln_loader_destroy(loader);
}

static void what_is_asked_for_is_recorded(void) {
  char record[512];
  snprintf(record, sizeof record, "%s.record", store);
  FILE* const empty = fopen(record, "w");
  CHECK(empty != NULL && fclose(empty) == 0);
  cukiln_options options = defaults();
  options.record = record;
  cukiln_loader* loader = NULL;
  CHECK_CODE(CUKILN_OK, cukiln_loader_create(&options, &loader));
  struct seen seen;
  CHECK_CODE(CUKILN_OK, compile(loader, "extern \"C\" __global__ void recorded() {}", &seen, NULL));
  cukiln_loader_destroy(loader);
  char line[4096] = "";
  FILE* const file = fopen(record, "r");
  CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
  CHECK(strstr(line, "recorded()") != NULL);
  if (file != NULL) fclose(file);
}

static void cancel_ends_compiles_until_they_resume(void) {
  cukiln_loader* const loader = open_loader();
  cukiln_loader_cancel(loader);
  struct seen seen;
  CHECK_CODE(CUKILN_TIMEOUT,
             compile(loader, "extern \"C\" __global__ void cancelled() {}", &seen, NULL));
  cukiln_loader_resume(loader);  // and what was cancelled is no failure to be remembered
  CHECK_CODE(CUKILN_OK,
             compile(loader, "extern \"C\" __global__ void cancelled() {}", &seen, NULL));
  cukiln_loader_destroy(loader);
}

static void named_headers_are_found_by_name(void) {
  cukiln_loader* const loader = open_loader();
  const char* const text = "#include <jit/a.h>\nextern \"C\" __global__ void k(int* x) { *x = A; }";
  const cukiln_source source = {"k.cu", text, strlen(text)};
  cukiln_source header = {"jit/a.h", "#define A 1\n", 12};
  const char* const targets[] = {"sm_90a"};
  cukiln_module module = {.struct_bytes = sizeof module,
                          .sources = &source,
                          .source_count = 1,
                          .targets = targets,
                          .target_count = 1,
                          .named_headers = &header,
                          .named_header_count = 1};
  const cukiln_module* const modules[] = {&module};
  const cukiln_preload_options options = {.struct_bytes = sizeof options, .no_load = 1};
  CHECK_CODE(CUKILN_OK, cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  header.path = "a.h";
  CHECK_CODE(CUKILN_COMPILE_FAILED,
             cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  CHECK(strstr(cukiln_last_error(), "jit/a.h") != NULL);
  header.text = NULL;
  CHECK_CODE(CUKILN_INVALID_ARGUMENT,
             cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  cukiln_loader_destroy(loader);
}

static void sources_are_linked(void) {
  cukiln_loader* const loader = open_loader();
  const char* const caller =
      "__device__ int f(int); extern \"C\" __global__ void k(int* x) { *x = f(*x); }";
  const char* const callee = "__device__ int f(int x) { return x + 1; }";
  const cukiln_source sources[] = {{"a.cu", caller, strlen(caller)}, {"b.cu", callee, strlen(callee)}};
  const char* const targets[] = {"sm_90a"};
  cukiln_module module = {.struct_bytes = sizeof module,
                          .sources = sources,
                          .source_count = 2,
                          .targets = targets,
                          .target_count = 1,
                          .link = CUKILN_LINK_LTO};
  const cukiln_module* const modules[] = {&module};
  const cukiln_preload_options options = {.struct_bytes = sizeof options, .no_load = 1};
  const cukiln_code code = cukiln_loader_preload_modules(loader, modules, 1, &options, NULL);
  if (code == CUKILN_NOT_FOUND && strstr(cukiln_last_error(), "without src/addons/link") != NULL) {
    cukiln_loader_destroy(loader);
    return;
  }
  CHECK_CODE(CUKILN_OK, code);
  module.source_count = 1;
  CHECK_CODE(CUKILN_COMPILE_FAILED,
             cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  CHECK(strstr(cukiln_last_error(), "does not link") != NULL);
  const char* const objects[] = {"/nowhere/x.o"};
  module.objects = objects;
  module.object_count = 1;
  CHECK_CODE(CUKILN_NOT_FOUND, cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  module.link = 3;
  CHECK_CODE(CUKILN_INVALID_ARGUMENT,
             cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  CHECK(strstr(cukiln_last_error(), "cukiln_link_mode") != NULL);
  cukiln_loader_destroy(loader);
}

static void keep_variables(void* user, size_t done, size_t total,
                           const cukiln_module_report* last) {
  (void)done;
  (void)total;
  *(int*)user = last->kernel_count == 1 && last->variable_count == 1 &&
                strcmp(last->variables[0].name, "table") == 0 &&
                strcmp(last->variables[0].lowered, "table") == 0 &&
                last->variables[0].size_bytes == 12 && last->variables[0].is_constant == 1;
}

static void a_variable_has_an_address(void) {
  void* const fake = dlopen(FAKE_CUDA, RTLD_NOW);
  void (*set_global)(const char*, size_t) = NULL;
  if (!CHECK(fake != NULL)) return;
  *(void**)&set_global = dlsym(fake, "fake_cuda_set_global");
  set_global("table", 12);
  cukiln_loader* const loader = open_loader();
  const char* const text =
      "__constant__ int table[3]; extern \"C\" __global__ void k(int* x) { *x = table[*x]; }";
  const cukiln_source source = {"k.cu", text, strlen(text)};
  const char* const names[] = {"k", "&table"};
  const char* const targets[] = {"sm_90a"};
  const cukiln_module module = {.struct_bytes = sizeof module,
                                .sources = &source,
                                .source_count = 1,
                                .names = names,
                                .name_count = 2,
                                .targets = targets,
                                .target_count = 1};
  const cukiln_module* const modules[] = {&module};
  int listed = 0;
  const cukiln_preload_options options = {
      .struct_bytes = sizeof options, .progress = keep_variables, .progress_user = &listed};
  CHECK_CODE(CUKILN_OK, cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  CHECK(listed == 1);
  uint64_t address = 0;
  size_t bytes = 0;
  CHECK_CODE(CUKILN_OK, cukiln_loader_get_global(loader, &module, "& table", 0, &address, &bytes));
  CHECK(address != 0 && bytes == 12);
  uint64_t same = 0;
  CHECK_CODE(CUKILN_OK, cukiln_loader_get_global(loader, &module, "table", 0, &same, NULL));
  CHECK(same == address);
  CHECK_CODE(CUKILN_NOT_FOUND,
             cukiln_loader_get_global(loader, &module, "none", 0, &address, &bytes));
  CHECK(address == 0 && bytes == 0 && strstr(cukiln_last_error(), "its names have table") != NULL);
  CHECK_CODE(CUKILN_INVALID_ARGUMENT,
             cukiln_loader_get_global(loader, &module, "table", 99, &address, &bytes));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT,
             cukiln_loader_get_global(loader, &module, NULL, 0, &address, &bytes));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT,
             cukiln_loader_get_global(loader, &module, "table", 0, NULL, &bytes));
  cukiln_loader_destroy(loader);
}

static void a_kernel_launches_from_c(void) {
  void* const fake = dlopen(FAKE_CUDA, RTLD_NOW);
  size_t (*launches)(void) = NULL;
  void* (*new_context)(int) = NULL;
  unsigned (*push)(void*) = NULL;
  void (*set_parameters)(const char*, const size_t*, size_t) = NULL;
  if (!CHECK(fake != NULL)) return;
  *(void**)&launches = dlsym(fake, "fake_cuda_launches");
  *(void**)&new_context = dlsym(fake, "fake_cuda_new_context");
  *(void**)&push = dlsym(fake, "cuCtxPushCurrent_v2");
  *(void**)&set_parameters = dlsym(fake, "fake_cuda_set_parameters");
  CHECK(push(new_context(0)) == 0);
  const size_t sizes[] = {sizeof(float*), sizeof(int)};
  set_parameters("twice", sizes, 2);

  cukiln_loader* const loader = open_loader();
  const char* const manifest = write_file("manifest.json",
                                          "{\"format\":1,\"modules\":[{\"name\":\"twice\","
                                          "\"sources\":[\"twice.cu\"],\"names\":[\"twice\"]}]}");
  write_file("twice.cu", kSource);
  cukiln_preload_report report = {.struct_bytes = sizeof report};
  CHECK_CODE(CUKILN_OK, cukiln_loader_preload(loader, manifest, NULL, &report));
  CHECK(cukiln_loader_kernel_count(loader) == 1 && report.failed == 0);

  const cukiln_kernel kernel = cukiln_loader_find(loader, "twice");
  CHECK(kernel != NULL && kernel == cukiln_loader_at(loader, 0));
  CHECK(kernel == cukiln_loader_find(loader, "twice/twice@sm_90a"));
  CHECK(cukiln_kernel_native(kernel) != NULL);
  CHECK(cukiln_kernel_parameter_count(kernel) == 2);
  CHECK(cukiln_kernel_parameter_bytes(kernel, 0) == 8 &&
        cukiln_kernel_parameter_bytes(kernel, 1) == 4);
  CHECK(cukiln_kernel_parameter_bytes(kernel, 2) == 0 &&
        cukiln_kernel_parameter_bytes(NULL, 0) == 0);
  char name[4];
  CHECK(cukiln_kernel_name(kernel, name, sizeof name) == 5 && strcmp(name, "twi") == 0);

  float* x = NULL;
  int n = 4;
  void* const arguments[] = {&x, &n};
  cukiln_launch_config config = {.struct_bytes = sizeof config, .grid = {2}, .block = {32, 2}};
  const size_t before = launches();
  CHECK_CODE(CUKILN_OK, cukiln_kernel_launch(kernel, NULL, &config, arguments));
  CHECK(launches() == before + 1);
  config.struct_bytes = 3;
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_kernel_launch(kernel, NULL, &config, arguments));
  CHECK(launches() == before + 1);

  cukiln_loader_seal(loader, CUKILN_SEAL_FAIL);
  CHECK(cukiln_loader_sealed(loader) == 1);
  const char* const other = write_file("other.cu", "extern \"C\" __global__ void other() {}");
  CHECK_CODE(CUKILN_SEALED, cukiln_loader_get_cuda_module(loader, "other", &other, 1, NULL, 0));
  cukiln_loader_seal(loader, CUKILN_SEAL_WARN);
  const char* const nvcc[] = {"-O3", "--expt-relaxed-constexpr"};
  CHECK_CODE(CUKILN_OK, cukiln_loader_get_cuda_module(loader, "other", &other, 1, nvcc, 2));
  CHECK(cukiln_loader_find(loader, "other/other") != NULL);
  cukiln_stats stats = {.struct_bytes = sizeof stats};
  CHECK_CODE(CUKILN_OK, cukiln_loader_stats(loader, &stats));
  CHECK(stats.sealed_violations != 0);
  cukiln_loader_destroy(loader);
}

/// Where the fake driver's own functions are.
static void* fake_function(const char* name) {
  void* const fake = dlopen(FAKE_CUDA, RTLD_NOW);
  void* const function = fake != NULL ? dlsym(fake, name) : NULL;
  CHECK(function != NULL);
  return function;
}

static void a_kernels_resources_are_those_on_one_device(void) {
  cukiln_loader* const loader = open_loader();
  const char text[] = "extern \"C\" __global__ void twice(float* x) { *x *= 2; }";
  const cukiln_source source = {"twice.cu", text, strlen(text)};
  const cukiln_module module = {
      .struct_bytes = sizeof module, .sources = &source, .source_count = 1};
  cukiln_kernel kernel = NULL;
  CHECK_CODE(CUKILN_OK, cukiln_loader_get(loader, &module, NULL, NULL, &kernel));

  cukiln_kernel_attributes used = {.struct_bytes = sizeof used};
  CHECK_CODE(CUKILN_OK, cukiln_kernel_get_attributes(kernel, 0, &used));
  CHECK(used.struct_bytes == sizeof used);
  CHECK(used.registers == 32 && used.max_block_threads == 1024);
  CHECK(used.static_shared_bytes == 1024 && used.dynamic_shared_bytes == 47 << 10);
  CHECK(used.constant_bytes == 64 && used.local_bytes == 16);
  CHECK_CODE(CUKILN_OK, cukiln_kernel_reserve_shared(kernel, 100 << 10));
  CHECK_CODE(CUKILN_OK, cukiln_kernel_get_attributes(kernel, 0, &used));
  CHECK(used.dynamic_shared_bytes == 100 << 10);
  used.registers = 7;
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_kernel_get_attributes(kernel, 1, &used));
  CHECK_ERROR_SAYS("not loaded on device 1");
  CHECK(used.registers == 7);
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_kernel_get_attributes(kernel, 0, NULL));
  used.struct_bytes = 3;
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_kernel_get_attributes(kernel, 0, &used));
  CHECK_ERROR_SAYS("sizeof(cukiln_kernel_attributes)");

  uint32_t blocks = 0;
  CHECK_CODE(CUKILN_OK, cukiln_kernel_max_blocks_per_sm(kernel, 0, 256, 0, &blocks));
  CHECK(blocks == 8);
  CHECK_CODE(CUKILN_OK, cukiln_kernel_max_blocks_per_sm(kernel, 0, 32, 100000, &blocks));
  CHECK(blocks == 2);
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_kernel_max_blocks_per_sm(kernel, 0, 2000, 0, &blocks));
  CHECK_ERROR_SAYS("expected 1 to 1024");
  CHECK(blocks == 0);
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_kernel_max_blocks_per_sm(kernel, 1, 32, 0, &blocks));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_kernel_max_blocks_per_sm(kernel, 0, 32, 0, NULL));

  void (*fail)(const char*, unsigned, int) = NULL;
  *(void**)&fail = fake_function("fake_cuda_fail");
  fail("cuKernelGetAttribute", 700, 1);
  used.struct_bytes = sizeof used;
  CHECK_CODE(CUKILN_DRIVER, cukiln_kernel_get_attributes(kernel, 0, &used));
  fail("cuOccupancyMaxActiveBlocksPerMultiprocessor", 700, 1);
  CHECK_CODE(CUKILN_DRIVER, cukiln_kernel_max_blocks_per_sm(kernel, 0, 32, 0, &blocks));
  cukiln_loader_destroy(loader);
}

static void the_visible_devices_are_described(void) {
  void (*set_devices)(int) = NULL;
  void (*set_capability)(int, int) = NULL;
  void (*fail)(const char*, unsigned, int) = NULL;
  *(void**)&set_devices = fake_function("fake_cuda_set_devices");
  *(void**)&set_capability = fake_function("fake_cuda_set_capability");
  *(void**)&fail = fake_function("fake_cuda_fail");
  set_devices(2);
  set_capability(1, 100);
  cukiln_loader* loader = open_loader();
  size_t count = 9;
  CHECK_CODE(CUKILN_OK, cukiln_loader_device_count(loader, &count));
  CHECK(count == 2);
  cukiln_device_info device = {.struct_bytes = sizeof device};
  CHECK_CODE(CUKILN_OK, cukiln_loader_device(loader, 1, &device));
  CHECK(device.ordinal == 1 && device.capability == 100 && device.num_sms == 148);
  CHECK(device.memory_bytes == (uint64_t)80 << 30 && strcmp(device.name, "Fake GPU 1") == 0);
  CHECK_CODE(CUKILN_OK, cukiln_loader_device(loader, 0, &device));
  CHECK(device.ordinal == 0 && device.capability == 90);
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_device(loader, 2, &device));
  CHECK_ERROR_SAYS("no device 2; expected an ordinal of the 2 visible ones");
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_device(loader, -1, &device));
  CHECK(device.ordinal == 0);
  device.struct_bytes = 0;
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_device(loader, 0, &device));
  CHECK_ERROR_SAYS("sizeof(cukiln_device_info)");
  cukiln_loader_destroy(loader);

  fail("cuInit", 100, 2);
  loader = open_loader();
  CHECK_CODE(CUKILN_DRIVER, cukiln_loader_device_count(loader, &count));
  CHECK_ERROR_SAYS("no GPU is visible");
  CHECK(count == 0);
  device.struct_bytes = sizeof device;
  CHECK_CODE(CUKILN_DRIVER, cukiln_loader_device(loader, 0, &device));
  cukiln_loader_destroy(loader);
  set_devices(1);
}

static void a_preload_is_refused_while_its_guard_captures(void) {
  void (*set_capture)(cukiln_stream, int) = NULL;
  *(void**)&set_capture = fake_function("fake_cuda_set_capture");
  cukiln_loader* const loader = open_loader();
  const char text[] = "extern \"C\" __global__ void guarded() {}";
  const cukiln_source source = {"guarded.cu", text, strlen(text)};
  const cukiln_module module = {
      .struct_bytes = sizeof module, .sources = &source, .source_count = 1};
  const cukiln_module* const modules[] = {&module};
  const cukiln_preload_options options = {.struct_bytes = sizeof options,
                                          .capture_guard = (cukiln_stream)77};
  set_capture((cukiln_stream)77, 1);
  CHECK_CODE(CUKILN_INVALID_ARGUMENT,
             cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  CHECK_ERROR_SAYS("the capture_guard stream is being captured");
  set_capture((cukiln_stream)77, 0);
  CHECK_CODE(CUKILN_OK, cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  cukiln_loader_destroy(loader);
}

static void a_token_cancels_its_own_call(void) {
  cukiln_loader* const loader = open_loader();
  const char text[] = "extern \"C\" __global__ void token() {}";
  const cukiln_source source = {"token.cu", text, strlen(text)};
  const char* const targets[] = {"sm_90a"};
  const cukiln_module module = {.struct_bytes = sizeof module,
                                .sources = &source,
                                .source_count = 1,
                                .targets = targets,
                                .target_count = 1};
  const cukiln_module* const modules[] = {&module};
  cukiln_cancel_token* const token = cukiln_cancel_token_create();
  cukiln_preload_options options = {.struct_bytes = sizeof options, .no_load = 1, .cancel = token};
  cukiln_cancel_token_cancel(token);
  CHECK_CODE(CUKILN_TIMEOUT, cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  CHECK_ERROR_SAYS("cancelled");
  cukiln_kernel kernel = NULL;
  CHECK_CODE(CUKILN_TIMEOUT,
             cukiln_loader_get(loader, modules[0], NULL, token, &kernel));
  CHECK(kernel == NULL);
  cukiln_cancel_token_destroy(token);
  options.cancel = NULL;
  CHECK_CODE(CUKILN_OK, cukiln_loader_preload_modules(loader, modules, 1, &options, NULL));
  cukiln_cancel_token_cancel(NULL);
  cukiln_cancel_token_destroy(NULL);
  cukiln_loader_destroy(loader);
}

static void a_loader_is_watched_once(void) {
  cukiln_loader* const loader = open_loader();
  cukiln_watch* watch = NULL;
  cukiln_watch* second = NULL;
  const cukiln_watch_options wrong = {.struct_bytes = 3};
  const cukiln_watch_options options = {.struct_bytes = sizeof options, .after_seal = 1};
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_watch(NULL, NULL, &watch));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_watch(loader, NULL, NULL));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_watch(loader, &wrong, &watch));
  CHECK_CODE(CUKILN_OK, cukiln_loader_watch(loader, &options, &watch));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_watch(loader, NULL, &second));
  CHECK(watch != NULL && second == NULL);
  cukiln_watch_destroy(watch);
  CHECK_CODE(CUKILN_OK, cukiln_loader_watch(loader, NULL, &second));
  cukiln_loader_destroy(loader);
  cukiln_watch_destroy(second);
  cukiln_watch_destroy(NULL);
}

static void only_what_is_loaded_is_unloaded(void) {
  cukiln_loader* const loader = open_loader();
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_unload(NULL, ""));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_unload(loader, "12"));
  const char* const source = write_file("unload.cu", "extern \"C\" __global__ void unload() {}");
  struct seen seen = {0};
  const char* const manifest = write_file(
      "unload.json", "{\"format\":1,\"modules\":[{\"name\":\"unload\",\"sources\":[\"unload.cu\"]}]}");
  const cukiln_preload_options options = {
      .struct_bytes = sizeof options, .progress = remember, .progress_user = &seen};
  CHECK_CODE(CUKILN_OK, cukiln_loader_preload(loader, manifest, &options, NULL));
  CHECK(source != NULL && cukiln_loader_find(loader, "unload") != NULL);
  CHECK_CODE(CUKILN_OK, cukiln_loader_unload(loader, seen.key));
  CHECK(cukiln_loader_find(loader, "unload") == NULL && cukiln_loader_at(loader, 0) == NULL);
  CHECK_CODE(CUKILN_NOT_FOUND, cukiln_loader_unload(loader, seen.key));
  CHECK_ERROR_SAYS(seen.key);
  cukiln_loader_destroy(loader);
}

static void a_preload_may_name_its_modules(void) {
  cukiln_loader* const loader = open_loader();
  const char* const manifest =
      write_file("two.json",
                 "{\"format\":1,\"modules\":[{\"name\":\"one\",\"sources\":[\"none.cu\"]},"
                 "{\"name\":\"two\",\"sources\":[\"twice.cu\"],\"names\":[\"twice\"]}]}");
  const char* const names[] = {"two", "three"};
  struct seen seen = {0};
  cukiln_preload_options options = {.struct_bytes = sizeof options,
                                    .no_load = 1,
                                    .progress = remember,
                                    .progress_user = &seen,
                                    .modules = names,
                                    .module_count = 1};
  CHECK_CODE(CUKILN_OK, cukiln_loader_preload(loader, manifest, &options, NULL));
  CHECK(seen.calls == 1 && seen.total == 1);
  options.module_count = 2;
  CHECK_CODE(CUKILN_NOT_FOUND, cukiln_loader_preload(loader, manifest, &options, NULL));
  CHECK_ERROR_SAYS("three");
  cukiln_loader_destroy(loader);
}

static void count_warnings(void* user, cukiln_log_level level, const char* message) {
  *(size_t*)user += level <= CUKILN_LOG_WARN && message[0] != '\0' ? 1 : 0;
}

static void blobs_are_kept_beside_entries(void) {
  cukiln_loader* loader = open_loader();
  const char key[] = {'k', '\0', (char)0xff};
  void* data = loader;
  size_t bytes = 1;
  CHECK_CODE(CUKILN_OK, cukiln_blob_get(loader, "triton", key, sizeof key, &data, &bytes));
  CHECK(data == NULL && bytes == 0);
  CHECK_CODE(CUKILN_OK, cukiln_blob_put(loader, "triton", key, sizeof key, "a\0b", 3));
  CHECK_CODE(CUKILN_OK, cukiln_blob_put(loader, "triton", "empty", 5, NULL, 0));
  CHECK_CODE(CUKILN_OK, cukiln_blob_put(loader, "cuda.core", "empty", 5, "x", 1));
  CHECK_CODE(CUKILN_OK, cukiln_blob_get(loader, "triton", key, sizeof key, &data, &bytes));
  CHECK(data != NULL && bytes == 3 && memcmp(data, "a\0b", 3) == 0);
  cukiln_free(data);
  CHECK_CODE(CUKILN_OK, cukiln_blob_get(loader, "triton", "empty", 5, &data, &bytes));
  CHECK(data != NULL && bytes == 0);
  cukiln_free(data);
  int there = 7;
  CHECK_CODE(CUKILN_OK, cukiln_blob_contains(loader, "cuda.core", key, sizeof key, &there));
  CHECK(there == 0);
  cukiln_blob* blobs = NULL;
  size_t count = 0;
  CHECK_CODE(CUKILN_OK, cukiln_blob_list(loader, "triton", &blobs, &count));
  CHECK(count == 2 && strlen(blobs[0].id) == 64 && strcmp(blobs[1].kind, "triton") == 0);
  CHECK(blobs[0].key_bytes == sizeof key && memcmp(blobs[0].key, key, sizeof key) == 0);
  CHECK(blobs[0].size_bytes == 3 && blobs[0].created_s > 0 && strcmp(blobs[0].signer, "") == 0);
  cukiln_free(blobs);
  CHECK_CODE(CUKILN_OK, cukiln_blob_list(loader, NULL, &blobs, &count));
  CHECK(count == 3);
  cukiln_free(blobs);
  CHECK_CODE(CUKILN_OK, cukiln_blob_remove(loader, "triton", key, sizeof key, &there));
  CHECK(there == 1);
  CHECK_CODE(CUKILN_OK, cukiln_blob_remove(loader, "triton", key, sizeof key, &there));
  CHECK(there == 0);
  CHECK_CODE(CUKILN_OK, cukiln_blob_list(loader, "none", &blobs, &count));
  CHECK(count == 0 && blobs != NULL);
  cukiln_free(blobs);

  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_put(NULL, "k", "k", 1, "x", 1));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_put(loader, "k", "k", 1, NULL, 1));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_put(loader, NULL, "k", 1, "x", 1));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_put(loader, "k", NULL, 1, "x", 1));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_get(loader, "k", "k", 1, NULL, &bytes));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_get(loader, "k", "k", 1, &data, NULL));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_contains(loader, "k", "k", 1, NULL));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_remove(loader, "k", "k", 1, NULL));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_list(loader, NULL, NULL, &count));
  cukiln_loader_destroy(loader);
}

static void a_blob_is_produced_by_one_caller(void) {
  cukiln_loader* loader = open_loader();
  void* data = loader;
  size_t bytes = 1;
  cukiln_blob_lease* lease = NULL;
  CHECK_CODE(CUKILN_OK, cukiln_blob_get_or_lease(loader, "triton", "leased", 6, 1000, NULL, &data,
                                                 &bytes, &lease));
  CHECK(data == NULL && bytes == 0 && lease != NULL);
  CHECK(cukiln_blob_lease_is_exclusive(lease) == 1);
  cukiln_blob_lease* second = NULL;
  CHECK_CODE(CUKILN_OK, cukiln_blob_get_or_lease(loader, "triton", "leased", 6, UINT64_MAX, NULL,
                                                 &data, &bytes, &second));
  CHECK(second != NULL && cukiln_blob_lease_is_exclusive(second) == 0);
  cukiln_blob_lease_destroy(second);
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_lease_put(lease, NULL, 1));
  CHECK_CODE(CUKILN_OK, cukiln_blob_lease_put(lease, "a\0b", 3));
  CHECK(cukiln_blob_lease_is_exclusive(lease) == 0);
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_lease_put(lease, "x", 1));
  CHECK_ERROR_SAYS("has ended");
  cukiln_blob_lease_destroy(lease);
  lease = (cukiln_blob_lease*)loader;
  CHECK_CODE(CUKILN_OK, cukiln_blob_get_or_lease(loader, "triton", "leased", 6, 0, NULL, &data,
                                                 &bytes, &lease));
  CHECK(lease == NULL && bytes == 3 && memcmp(data, "a\0b", 3) == 0);
  cukiln_free(data);

  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_get_or_lease(loader, "triton", "k", 1, 0, NULL,
                                                               &data, &bytes, NULL));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_get_or_lease(loader, "triton", "k", 0, 0, NULL,
                                                               &data, &bytes, &lease));
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_blob_lease_put(NULL, "x", 1));
  CHECK(cukiln_blob_lease_is_exclusive(NULL) == 0);
  cukiln_blob_lease_destroy(NULL);
  CHECK_CODE(CUKILN_OK, cukiln_blob_get_or_lease(loader, "triton", "dropped", 7, 0, NULL, &data,
                                                 &bytes, &lease));
  cukiln_loader_destroy(loader);
  cukiln_blob_lease_destroy(lease);
}

static void an_unusable_store_is_a_warning(void) {
  char folder[80];
  snprintf(folder, sizeof folder, "%s/shared", scratch);
  CHECK(mkdir(folder, 0777) == 0 && chmod(folder, 0777) == 0);
  size_t warnings = 0;
  cukiln_options options = defaults();
  options.store_directory = folder;
  options.log = count_warnings;
  options.log_user = &warnings;
  cukiln_loader* loader = NULL;
  CHECK_CODE(CUKILN_OK, cukiln_loader_create(&options, &loader));
  CHECK(warnings != 0);
  cukiln_loader_destroy(loader);
  options.store_directory = "relative/store";
  CHECK_CODE(CUKILN_INVALID_ARGUMENT, cukiln_loader_create(&options, &loader));
}

static void no_options_means_the_environment(void) {
  char folder[80];
  snprintf(folder, sizeof folder, "%s/from-environment", scratch);
  setenv("CUKILN_STORE", folder, 1);
  cukiln_loader* loader = NULL;
  CHECK_CODE(CUKILN_OK, cukiln_loader_create(NULL, &loader));
  CHECK(access(folder, F_OK) == 0);
  cukiln_loader_destroy(loader);
}

int main(void) {
  if (mkdtemp(scratch) == NULL) return 1;
  snprintf(store, sizeof store, "%s/store", scratch);
#define RUN(test) rule = #test, test()
  RUN(versions_and_codes_have_names);
  RUN(structs_carry_their_size);
  RUN(null_is_an_error_and_no_crash);
  RUN(the_last_error_is_the_threads_own);
  RUN(what_was_compiled_is_found_and_explained);
  RUN(flags_act_in_their_order_and_from_the_working_folder);
  RUN(standard_headers_for_device_code_can_be_left_out);
  RUN(a_compile_error_has_the_compilers_log);
  RUN(offline_forbids_a_compile);
  RUN(a_daemon_can_be_required_or_left_out);
  RUN(events_are_received);
  RUN(what_is_asked_for_is_recorded);
  RUN(cancel_ends_compiles_until_they_resume);
  RUN(named_headers_are_found_by_name);
  RUN(sources_are_linked);
  RUN(a_variable_has_an_address);
  RUN(a_kernel_launches_from_c);
  RUN(a_kernels_resources_are_those_on_one_device);
  RUN(the_visible_devices_are_described);
  RUN(a_preload_is_refused_while_its_guard_captures);
  RUN(a_token_cancels_its_own_call);
  RUN(a_loader_is_watched_once);
  RUN(only_what_is_loaded_is_unloaded);
  RUN(a_preload_may_name_its_modules);
  RUN(blobs_are_kept_beside_entries);
  RUN(a_blob_is_produced_by_one_caller);
  RUN(an_unusable_store_is_a_warning);
  RUN(no_options_means_the_environment);
  char command[80];
  snprintf(command, sizeof command, "rm -rf %s", scratch);
  if (system(command) != 0) ++failures;
  printf("%d failed checks\n", failures);
  return failures == 0 ? 0 : 1;
}
