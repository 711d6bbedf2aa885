// SPDX-License-Identifier: Apache-2.0
// A host that uses NVRTC's interface, linked with or preloaded by either library: it makes the calls of one case and
// prints every result: codes, sizes, digests of bytes, texts. The same output from both is what dropin_test.py asks for.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void* Program;
static void* library;  // null: the functions that the process is linked or preloaded with

static void* function(const char* name) { return dlsym(library != NULL ? library : RTLD_DEFAULT, name); }

#define CALL(name, types) ((int(*) types)function(#name))

static int create(Program* program, const char* text, const char* name, int count, const char* const* texts,
                  const char* const* names) {
  return CALL(nvrtcCreateProgram, (Program*, const char*, const char*, int, const char* const*, const char* const*))(
      program, text, name, count, texts, names);
}
static int compile(Program program, int count, const char* const* options) {
  return CALL(nvrtcCompileProgram, (Program, int, const char* const*))(program, count, options);
}
static int add_name(Program program, const char* expression) {
  return CALL(nvrtcAddNameExpression, (Program, const char*))(program, expression);
}
static int lowered_name(Program program, const char* expression, const char** lowered) {
  return CALL(nvrtcGetLoweredName, (Program, const char*, const char**))(program, expression, lowered);
}
static int destroy(Program* program) { return CALL(nvrtcDestroyProgram, (Program*))(program); }

static uint64_t digest_of(const char* bytes, size_t size) {
  uint64_t hash = 1469598103934665603u;
  for (size_t i = 0; i < size; ++i) {
    hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211u;
  }
  return hash;
}

static void print_part(Program program, const char* part) {
  char name[64];
  snprintf(name, sizeof name, "nvrtcGet%sSize", part);
  int (*size_of)(Program, size_t*) = (int (*)(Program, size_t*))function(name);
  snprintf(name, sizeof name, "nvrtcGet%s", part);
  int (*bytes_of)(Program, char*) = (int (*)(Program, char*))function(name);
  if (size_of == NULL || bytes_of == NULL) {
    return;
  }
  size_t size = 0;
  const int size_code = size_of(program, &size);
  char* bytes = calloc(1, size + 16);
  memset(bytes, 0x5a, size + 16);
  const int bytes_code = bytes_of(program, bytes);
  int beyond = 0;
  for (size_t i = size; i < size + 16; ++i) {
    beyond += bytes[i] != 0x5a;
  }
  printf("%s: %d %zu, %d %016lx, %d bytes beyond\n", part, size_code, size, bytes_code,
         (unsigned long)digest_of(bytes, size), beyond);
  if (strcmp(part, "ProgramLog") == 0) {
    printf("%s\n", bytes);
  }
  free(bytes);
}

// Further ones: a name that the caller knows this NVRTC to have.
static void print_parts(Program program) {
  const char* const parts[] = {"ProgramLog", "CUBIN", "PTX", "LTOIR", "OptiXIR"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) {
    print_part(program, parts[i]);
  }
  if (getenv("PART_TOO") != NULL) {
    print_part(program, getenv("PART_TOO"));
  }
}

static void print_lowered(Program program, const char* expression) {
  const char* lowered = "unchanged";
  const int code = lowered_name(program, expression, &lowered);
  printf("lowered %s: %d %s\n", expression, code, lowered);
}

// Runs one program: FILE's text under NAME (- for NULL), headers `name=FILE`, names `:expression`, options.
static int run_program(int count, char** words) {
  static char text[1 << 22];
  FILE* file = fopen(words[0], "rb");
  if (file == NULL) {
    perror(words[0]);
    return 2;
  }
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  const char* options[64];
  const char* names[64];
  const char* header_names[64];
  const char* header_texts[64];
  int option_count = 0;
  int name_count = 0;
  int header_count = 0;
  for (int i = 2; i < count; ++i) {
    char* equals = strchr(words[i], '=');
    if (words[i][0] == ':') {
      names[name_count++] = words[i] + 1;
    } else if (words[i][0] != '-' && equals != NULL) {
      *equals = '\0';
      header_names[header_count] = words[i];
      header_texts[header_count++] = equals + 1;
    } else {
      options[option_count++] = words[i];
    }
  }
  Program program = NULL;
  printf("create: %d\n", create(&program, text, strcmp(words[1], "-") == 0 ? NULL : words[1], header_count,
                                header_texts, header_names));
  for (int i = 0; i < name_count; ++i) {
    printf("name %s: %d\n", names[i], add_name(program, names[i]));
  }
  struct timespec before;
  struct timespec after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  const int code = compile(program, option_count, options);
  clock_gettime(CLOCK_MONOTONIC, &after);
  printf("compile: %d\n", code);
  fprintf(stderr, "us %ld\n",
          (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000);
  print_parts(program);
  for (int i = 0; i < name_count; ++i) {
    print_lowered(program, names[i]);
  }
  print_lowered(program, "absent");
  const char* const then = getenv("THEN");  // an option, after others, of a second compile
  if (then != NULL) {
    options[option_count] = then;
    printf("then: %d\n", compile(program, option_count + 1, options));
    print_parts(program);
    for (int i = 0; i < name_count; ++i) {
      print_lowered(program, names[i]);
    }
    print_lowered(program, "absent");
  }
  if (getenv("AGAIN") != NULL) {
    printf("again: %d\n", compile(program, option_count, options));
    print_parts(program);
    const char* const bad[] = {"--no-such-option"};
    printf("with a bad option: %d\n", compile(program, 1, bad));
    print_parts(program);
    for (int i = 0; i < name_count; ++i) {
      print_lowered(program, names[i]);
    }
    printf("name after: %d\n", add_name(program, "after"));
  }
  const int destroyed = destroy(&program);
  printf("destroy: %d %d\n", destroyed, program == NULL);
  return 0;
}

// Compiles a small program with each list of options of a file: a word ends with \x1f, a list with \x1e.
static int run_lists(const char* path) {
  static char text[1 << 20];
  FILE* file = fopen(path, "rb");
  if (file == NULL) {
    perror(path);
    return 2;
  }
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  const char* options[64];
  int count = 0;
  int number = 0;
  char* word = text;
  for (char* at = text; *at != '\0'; ++at) {
    if (*at == '\x1f') {
      *at = '\0';
      options[count++] = word;
      word = at + 1;
    } else if (*at == '\x1e') {
      Program program = NULL;
      printf("list %d: %d", number, create(&program, "extern \"C\" __global__ void k(int* x) { *x = __CUDA_ARCH__; }",
                                           "k.cu", 0, NULL, NULL));
      printf(" %d\n", compile(program, count, options));
      print_parts(program);
      destroy(&program);
      ++number;
      count = 0;
      word = at + 1;
    }
  }
  return 0;
}

static int run_hostile(void) {
  Program program = NULL;
  size_t size = 0;
  const char* lowered = NULL;
  const char* const one[] = {"int in_header;"};
  const char* const one_name[] = {"in.h"};
  const char* const none[] = {NULL};
#define PRINT(call) printf("%s: %d\n", #call, call)
#define PART(name) CALL(nvrtcGet##name##Size, (Program, size_t*))
#define BYTES(name) CALL(nvrtcGet##name, (Program, char*))
  PRINT(create(NULL, "", NULL, 0, NULL, NULL));
  PRINT(create(&program, NULL, NULL, 0, NULL, NULL));
  PRINT(create(NULL, NULL, NULL, -1, NULL, NULL));
  PRINT(create(&program, "", NULL, -1, NULL, NULL));
  PRINT(create(&program, "", NULL, 1, NULL, NULL));
  PRINT(create(&program, "", NULL, 1, one, NULL));
  PRINT(create(&program, "", NULL, 1, NULL, one_name));
  PRINT(create(&program, "", NULL, 1, none, one_name));
  PRINT(create(&program, "", NULL, 1, one, none));
  const char* const two[] = {"int a;", "int b;"};
  const char* const equal_names[] = {"in.h", "in.h"};
  PRINT(create(&program, "", NULL, 2, two, equal_names));
  PRINT(destroy(NULL));
  program = NULL;
  PRINT(destroy(&program));
  PRINT(compile(NULL, 0, NULL));
  PRINT(add_name(NULL, "x"));
  PRINT(add_name(NULL, NULL));
  PRINT(lowered_name(NULL, "x", &lowered));
  PRINT(lowered_name(NULL, NULL, NULL));
  PRINT(PART(ProgramLog)(NULL, &size));
  PRINT(PART(ProgramLog)(NULL, NULL));
  PRINT(PART(PTX)(NULL, &size));
  PRINT(PART(CUBIN)(NULL, NULL));
  PRINT(BYTES(CUBIN)(NULL, NULL));
  PRINT(CALL(nvrtcGetPCHCreateStatus, (Program))(NULL));
  PRINT(CALL(nvrtcGetPCHHeapSizeRequired, (Program, size_t*))(NULL, NULL));
  PRINT(CALL(nvrtcSetFlowCallback, (Program, void*, void*))(NULL, NULL, NULL));
  PRINT(CALL(nvrtcVersion, (int*, int*))(NULL, NULL));
  PRINT(CALL(nvrtcGetNumSupportedArchs, (int*))(NULL));
  PRINT(create(&program, "__global__ void k() {}", "k.cu", 0, one, one_name));
  print_parts(program);
  print_lowered(program, "k");
  PRINT(PART(ProgramLog)(program, NULL));
  PRINT(BYTES(ProgramLog)(program, NULL));
  PRINT(PART(PTX)(program, NULL));
  PRINT(BYTES(PTX)(program, NULL));
  PRINT(add_name(program, NULL));
  PRINT(lowered_name(program, NULL, NULL));
  PRINT(CALL(nvrtcGetPCHCreateStatus, (Program))(program));
  PRINT(CALL(nvrtcGetPCHHeapSizeRequired, (Program, size_t*))(program, NULL));
  PRINT(CALL(nvrtcGetPCHHeapSizeRequired, (Program, size_t*))(program, &size));
  PRINT(CALL(nvrtcSetFlowCallback, (Program, void*, void*))(program, NULL, NULL));
  PRINT(compile(program, -1, NULL));
  PRINT(compile(program, 1, NULL));
  const char* const bad[] = {"--no-such-option"};
  PRINT(compile(program, 1, bad));
  print_parts(program);
  PRINT(add_name(program, "k"));
  PRINT(compile(program, 1, none));
  print_parts(program);
  PRINT(add_name(program, "k"));
  const char* const good[] = {"-arch=sm_90"};
  PRINT(compile(program, 1, good));
  print_parts(program);
  print_lowered(program, "k");
  PRINT(lowered_name(program, "k", NULL));
  PRINT(add_name(program, "k"));
  PRINT(destroy(&program));
  return 0;
}

// What NVRTC itself does not survive: for the drop-in only.
static int run_destroyed(void) {
  Program program = NULL;
  size_t size = 0;
  create(&program, "__global__ void k() {}", NULL, 0, NULL, NULL);
  Program copy = program;
  PRINT(destroy(&program));
  PRINT(destroy(&copy));
  PRINT(compile(copy, 0, NULL));
  PRINT(PART(CUBIN)(copy, &size));
  copy = (Program)run_destroyed;
  PRINT(compile(copy, 0, NULL));
  return 0;
}

enum { kThreads = 8 };
static Program shared;
static void* compile_shared(void* result) {
  const char* const options[] = {"-arch=sm_90"};
  *(int*)result = compile(shared, 1, options);
  size_t size = 0;
  *(int*)result |= PART(CUBIN)(shared, &size);
  *(int*)result |= size == 0;
  return NULL;
}
static int run_threads(void) {
  pthread_t threads[kThreads];
  int results[kThreads];
  create(&shared, "template <int n> __global__ void k(int* x) { *x = n; }", "k.cu", 0, NULL, NULL);
  add_name(shared, "k<7>");
  for (int i = 0; i < kThreads; ++i) {
    pthread_create(&threads[i], NULL, compile_shared, &results[i]);
  }
  int failed = 0;
  for (int i = 0; i < kThreads; ++i) {
    pthread_join(threads[i], NULL);
    failed += results[i] != 0;
  }
  printf("%d threads failed\n", failed);
  print_lowered(shared, "k<7>");
  PRINT(destroy(&shared));
  return failed;
}

// Compiles another program in a child and in the parent at once, after a first one.
static int compile_number(int number) {
  char text[128];
  snprintf(text, sizeof text, "extern \"C\" __global__ void k(int* x) { *x = %d; }", number);
  Program program = NULL;
  const char* const options[] = {"-arch=sm_90"};
  create(&program, text, "k.cu", 0, NULL, NULL);
  int code = compile(program, 1, options);
  size_t size = 0;
  code |= PART(CUBIN)(program, &size) | (size == 0);
  return code | destroy(&program);
}
static int run_fork(void) {
  int code = compile_number(1);
  const pid_t child = fork();
  code |= compile_number(child == 0 ? 2 : 3);
  code |= compile_number(1);
  if (child == 0) {
    exit(code);
  }
  int status = 1;
  waitpid(child, &status, 0);
  printf("parent %d child %d\n", code, status);
  return code | status;
}

static void* ask_version(void* result) {
  int minor = 0;
  CALL(nvrtcVersion, (int*, int*))((int*)result, &minor);
  return NULL;
}
// Forks while a thread opens NVRTC for the first time, which takes until there is a file `forked`.
static int run_first_fork(void) {
  pthread_t thread;
  int in_parent = 0;
  int in_child = 0;
  pthread_create(&thread, NULL, ask_version, &in_parent);
  while (access("opening", F_OK) != 0) {
    usleep(1000);
  }
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    ask_version(&in_child);
    _exit(in_child);
  }
  fclose(fopen("forked", "w"));
  pthread_join(thread, NULL);
  int status = 0;
  waitpid(child, &status, 0);
  printf("parent %d child %d\n", in_parent, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  return 0;
}

static int go_on(void* payload, void* unused) {
  (void)unused;
  ++*(int*)payload;
  return 0;
}
static int run_flow(void) {
  Program program = NULL;
  int calls = 0;
  const char* const options[] = {"-arch=sm_90"};
  create(&program, "__global__ void k(int* x) { *x = 1; }", "k.cu", 0, NULL, NULL);
  PRINT(CALL(nvrtcSetFlowCallback, (Program, int (*)(void*, void*), void*))(program, go_on, &calls));
  PRINT(compile(program, 1, options));
  printf("called: %d\n", calls > 0);
  return destroy(&program);
}

int main(int count, char** words) {
  const char* const opened = getenv("HOST_OPENS");
  if (opened != NULL && (library = dlopen(opened, RTLD_NOW | RTLD_LOCAL)) == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  if (count == 3 && strcmp(words[1], "lists") == 0) {
    return run_lists(words[2]);
  }
  if (count == 2 && strcmp(words[1], "hostile") == 0) {
    return run_hostile();
  }
  if (count == 2 && strcmp(words[1], "flow") == 0) {
    return run_flow();
  }
  if (count == 2 && strcmp(words[1], "first fork") == 0) {
    return run_first_fork();
  }
  if (count == 2 && strcmp(words[1], "fork") == 0) {
    return run_fork();
  }
  if (count == 2 && strcmp(words[1], "destroyed") == 0) {
    return run_destroyed();
  }
  if (count == 2 && strcmp(words[1], "threads") == 0) {
    return run_threads();
  }
  return count > 2 ? run_program(count - 1, words + 1) : 2;
}
