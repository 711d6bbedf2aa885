// SPDX-License-Identifier: Apache-2.0
/* A host in which the n-th allocation of a whole use of cukiln fails, for one n after the other: each
 * use must succeed or return an error, give back every descriptor, and be followed by one that works.
 *
 *   no_memory_test STORE NVRTC CUDA WORKER SOURCE warm|cold|exhausted [STRIDE [FIRST [LAST]]]
 *
 * NVRTC "-": the one that this machine has. warm: the store has the module; cold: a fresh store, and a compile; exhausted: warm, and from the
 * n-th on every allocation of the use fails. A child runs the uses and this process watches it, so
 * that an n that ends the host is named, and the next is tried. This is fault 90. */
#define _GNU_SOURCE
#include <cukiln/cukiln.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- malloc and its relatives, before libc's for every library of the process ---- */
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

static atomic_long left;      /* until the failing one; 0: none fails */
static atomic_int exhausted;  /* those after it fail too */
static atomic_int failures;

static int fails(void) {
  if (atomic_load(&left) == 0) {
    return 0;
  }
  const long before = atomic_fetch_sub(&left, 1);
  if (before > 1) {
    return 0;
  }
  atomic_store(&left, atomic_load(&exhausted) ? 1 : 0);
  atomic_fetch_add(&failures, 1);
  errno = ENOMEM;
  return 1;
}

void* malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails() ? NULL : __libc_calloc(count, size); }
void* realloc(void* at, size_t size) { return fails() ? NULL : __libc_realloc(at, size); }
void* memalign(size_t align, size_t size) { return fails() ? NULL : __libc_memalign(align, size); }
void* aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void** out, size_t align, size_t size) {
  if (fails()) {
    return ENOMEM;
  }
  *out = __libc_memalign(align, size);
  return *out == NULL ? ENOMEM : 0;
}

/* ---- one use ---- */
struct Paths {
  const char *store, *nvrtc, *cuda, *worker, *source;
};

struct Use {
  cukiln_code code; /* of the first call that failed */
  char message[512];
  cukiln_preload_report report;
  cukiln_stats stats;
};

struct Seen {
  int good;
  char error[400];
};

static void on_progress(void* user, size_t done, size_t total, const cukiln_module_report* last) {
  (void)done;
  (void)total;
  struct Seen* seen = user;
  seen->good += last->error_code == CUKILN_OK;
  snprintf(seen->error, sizeof seen->error, "%s %s", last->error, last->log);
}
static void on_log(void* user, cukiln_log_level level, const char* message) {
  (void)level;
  *(size_t*)user += strlen(message);
}

static void note(struct Use* use, cukiln_code code) {
  if (code != CUKILN_OK && use->code == CUKILN_OK) {
    use->code = code;
    snprintf(use->message, sizeof use->message, "%s: %s", cukiln_code_name(code),
             cukiln_last_error());
  }
}

static struct Use use_all(const struct Paths* paths) {
  struct Use use;
  memset(&use, 0, sizeof use);
  size_t logged = 0;
  struct Seen seen = {0, ""};
  cukiln_options options;
  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.store_directory = paths->store;
  options.system_directory = "";
  if (strcmp(paths->nvrtc, "-") == 0) {
    options.from_environment = 1;
  } else {
    options.nvrtc_library = paths->nvrtc;
  }
  options.cuda_library = paths->cuda;
  options.worker = paths->worker;
  options.jobs = 2;
  options.log = on_log;
  options.log_user = &logged;
  cukiln_loader* loader = NULL;
  note(&use, cukiln_loader_create(&options, &loader));
  if (loader == NULL) {
    return use;
  }
  const cukiln_source source = {paths->source, NULL, 0};
  const char* target = "sm_90a";
  cukiln_module module;
  memset(&module, 0, sizeof module);
  module.struct_bytes = sizeof module;
  module.sources = &source;
  module.source_count = 1;
  module.targets = &target;
  module.target_count = 1;
  const cukiln_module* const modules[] = {&module};
  cukiln_preload_options how;
  memset(&how, 0, sizeof how);
  how.struct_bytes = sizeof how;
  how.keep_going = 1;
  how.progress = on_progress;
  how.progress_user = &seen;
  use.report.struct_bytes = sizeof use.report;
  note(&use, cukiln_loader_preload_modules(loader, modules, 1, &how, &use.report));
  if (use.report.failed != 0 && use.code == CUKILN_OK) {
    use.code = CUKILN_INTERNAL;
    snprintf(use.message, sizeof use.message, "the module failed: %s", seen.error);
  }
  cukiln_kernel kernel = NULL;
  note(&use, cukiln_loader_get(loader, &module, NULL, NULL, &kernel));
  cukiln_device_info device;
  memset(&device, 0, sizeof device);
  device.struct_bytes = sizeof device;
  note(&use, cukiln_loader_device(loader, 0, &device));
  if (kernel != NULL) {
    cukiln_kernel_attributes attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.struct_bytes = sizeof attributes;
    note(&use, cukiln_kernel_get_attributes(kernel, 0, &attributes));
    uint32_t blocks = 0;
    note(&use, cukiln_kernel_max_blocks_per_sm(kernel, 0, 256, 0, &blocks));
  }
  cukiln_explanation* explanation = NULL;
  note(&use, cukiln_loader_explain(loader, &module, target, &explanation));
  cukiln_explanation_destroy(explanation);
  use.stats.struct_bytes = sizeof use.stats;
  note(&use, cukiln_loader_stats(loader, &use.stats));
  if (use.code == CUKILN_OK && (seen.good != 1 || kernel == NULL)) {
    use.code = CUKILN_INTERNAL;
    snprintf(use.message, sizeof use.message, "%d modules, kernel %p", seen.good, (const void*)kernel);
  }
  cukiln_loader_destroy(loader);
  return use;
}

static int open_descriptors(void) {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (folder != NULL && readdir(folder) != NULL) {
    ++count;
  }
  closedir(folder);
  return count;
}

/* ---- the child ---- */
struct Shared {
  atomic_long n;        /* being tried */
  atomic_long errors;   /* uses that returned one */
  atomic_long broken;   /* uses after which the next did not work */
  atomic_int finished;
};

enum Mode { warm, cold, all_fail };

static void remove_store(const char* store) {
  char command[4200];
  snprintf(command, sizeof command, "rm -rf '%s'", store);
  if (system(command) != 0) {
    perror(command);
  }
}

static void run(const struct Paths* given, enum Mode mode, long stride, long last,
                struct Shared* shared) {
  struct Paths paths = *given;
  char fresh[4096];
  struct Use first = use_all(&paths); /* fills the store; opens what stays open */
  first = use_all(&paths);
  if (first.code != CUKILN_OK || first.report.hits != 1) {
    printf("the use without a failure: %s\n", first.message);
    atomic_fetch_add(&shared->broken, 1);
    return;
  }
  int descriptors = open_descriptors();
  const long start = atomic_load(&shared->n);
  for (long n = start; n <= last; n += stride) {
    atomic_store(&shared->n, n);
    alarm(60);
    if (mode == cold) {
      snprintf(fresh, sizeof fresh, "%s-%ld", given->store, n);
      paths.store = fresh;
    }
    atomic_store(&failures, 0);
    atomic_store(&exhausted, mode == all_fail);
    atomic_store(&left, n);
    const struct Use use = use_all(&paths);
    atomic_store(&left, 0);
    if (atomic_load(&failures) == 0) {
      if (n == start) {
        printf("allocation %ld did not fail: is this program's malloc not the process's?\n", n);
        atomic_fetch_add(&shared->broken, 1);
      }
      atomic_store(&shared->finished, 1);
      break;
    }
    atomic_fetch_add(&shared->errors, use.code != CUKILN_OK);
    const struct Use next = use_all(&paths);
    const int kept_open = open_descriptors() - descriptors;
    const int lost = mode != cold && next.report.hits != 1;
    if (next.code != CUKILN_OK || next.stats.corrupt != 0 || use.stats.corrupt != 0 || lost ||
        kept_open > 0) {
      atomic_fetch_add(&shared->broken, 1);
      printf("allocation %ld failed (%s); then: %s, %zu hits, %llu corrupt, %d descriptors left\n",
             n, use.message, next.code == CUKILN_OK ? "ok" : next.message, next.report.hits,
             (unsigned long long)(next.stats.corrupt + use.stats.corrupt), kept_open);
      descriptors += kept_open;
    }
    if (mode == cold) {
      remove_store(fresh);
    }
  }
}

int main(int count, char** words) {
  if (count < 7) {
    return 2;
  }
  const struct Paths paths = {words[1], words[2], words[3], words[4], words[5]};
  const enum Mode mode = strcmp(words[6], "cold") == 0        ? cold
                         : strcmp(words[6], "exhausted") == 0 ? all_fail
                                                              : warm;
  const long stride = count > 7 ? atol(words[7]) : 1;
  const long last = count > 9 ? atol(words[9]) : 1000000;
  struct Shared* shared =
      mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  atomic_store(&shared->n, count > 8 ? atol(words[8]) : 1);
  long ended = 0;
  for (;;) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      setvbuf(stdout, NULL, _IOLBF, 0);
      run(&paths, mode, stride, last, shared);
      fflush(stdout);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) {
      break;
    }
    const long n = atomic_load(&shared->n);
    printf("allocation %ld failed: signal %d ended the host\n", n, WTERMSIG(status));
    ++ended;
    atomic_store(&shared->n, n + stride);
  }
  remove_store(paths.store);
  printf("%s: allocations 1 to %ld, every %ld; %ld uses returned an error, %ld ended the host, "
         "after %ld the host was broken\n",
         words[6], atomic_load(&shared->n), stride, atomic_load(&shared->errors), ended,
         atomic_load(&shared->broken));
  const int reached = atomic_load(&shared->finished) || last < 1000000;
  return ended == 0 && atomic_load(&shared->broken) == 0 && reached ? 0 : 1;
}
